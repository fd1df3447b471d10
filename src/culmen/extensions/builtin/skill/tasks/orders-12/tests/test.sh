#!/bin/bash
python3 /tests/check.py /app/report.csv > /logs/verifier/reward.txt
