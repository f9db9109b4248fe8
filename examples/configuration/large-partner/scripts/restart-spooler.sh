#!/bin/bash
set -eu
systemctl restart cups
