#!/bin/bash
python3 /tests/check.py /app/prices.txt > /logs/verifier/reward.txt
