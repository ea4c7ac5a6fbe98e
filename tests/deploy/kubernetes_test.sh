#!/bin/bash
set -euo pipefail
exec python3 -B tests/deploy/kubernetes_test.py proto/mrd/v1/version.h deploy/kubernetes/*.yaml
