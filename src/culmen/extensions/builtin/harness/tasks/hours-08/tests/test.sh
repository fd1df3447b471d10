#!/bin/bash
[ "$(tr -d '[:space:]' < /app/answer.txt)" = "$(cat /tests/expected.txt)" ]
echo $((! $?)) > /logs/verifier/reward.txt
