#!/bin/sh
# Writes ollama/pb/ from proto/sidecar.proto. The plugins are pinned as tools in go.mod, protoc comes with grpcio-tools.
# PYTHON names an interpreter that has it; the default is the project's own environment.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-../.venv/bin/python}"
"$python" -m grpc_tools.protoc -I../proto \
  --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" \
  --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" \
  --go_out=pb --go_opt=paths=source_relative \
  --go-grpc_out=pb --go-grpc_opt=paths=source_relative \
  sidecar.proto
