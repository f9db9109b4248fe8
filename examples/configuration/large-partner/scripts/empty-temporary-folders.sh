#!/bin/bash
set -eu
find /tmp -xdev -mtime +7 -delete
