#!/bin/sh
# Writes ollama/pb/ from proto/sidecar.proto. The plugins are pinned as tools in go.mod, protoc comes with grpcio-tools.
# PYTHON names an interpreter that has it; the default is the project's own environment. An argument is another folder.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-../.venv/bin/python}"
into="${1:-pb}"
"$python" -m grpc_tools.protoc -I../proto \
  --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" \
  --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" \
  --go_out="$into" --go_opt=paths=source_relative \
  --go-grpc_out="$into" --go-grpc_opt=paths=source_relative \
  sidecar.proto
