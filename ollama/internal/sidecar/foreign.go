package sidecar

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/foreign"
)

// What the sidecar says is in part what other machines say: it is made harmless here, where it enters the program.

func cleanCall(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	err := call(ctx, method, request, reply, conn, options...)
	return cleaned(reply, err)
}

func cleanStream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		return nil, cleaned(nil, err)
	}
	return cleanedStream{stream}, nil
}

type cleanedStream struct{ grpc.ClientStream }

func (s cleanedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	return cleaned(message, err)
}

// cleaned makes a message harmless, or the sentence of an error.
func cleaned(message any, err error) error {
	if err == nil {
		if m, ok := message.(proto.Message); ok {
			foreign.Clean(m)
		}
		return nil
	}
	told, ok := status.FromError(err)
	if sentence := foreign.Line(told.Message()); ok && sentence != told.Message() {
		return status.Error(told.Code(), sentence)
	}
	return err
}
