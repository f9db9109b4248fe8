#!/bin/bash
set -eu
systemctl restart scanner-bridge
