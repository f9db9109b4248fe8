#!/bin/bash
df -k / | awk 'NR == 2 { print $4 " KiB are free" }'
