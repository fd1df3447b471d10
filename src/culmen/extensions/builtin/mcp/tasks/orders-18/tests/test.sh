#!/bin/bash
[ -f /app/answer.txt ] || echo "there is no answer.txt"
cmp /app/answer.txt /tests/expected.txt
echo $((! $?)) > /logs/verifier/reward.txt
