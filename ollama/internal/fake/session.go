package fake

import "kafila/ollama/pb"

// ModelName is what the model of ReadySession is called.
const ModelName = "kafila/session/model:7"

// ReadySession is a session that is ready, for tests that need one.
func ReadySession() *pb.Session {
	return &pb.Session{
		Id: "s1", Code: "7-ocean-velvet-lamp", State: "ready", Model: "org/model", Revision: "b968826d9c46", Self: "laptop", Host: "laptop", Concurrency: 2, ContextTokens: 4096,
		Vehicle: &pb.StubModel{
			Name: ModelName, Architecture: "qwen3", ContextLength: 4096, EmbeddingLength: 576,
			ParameterCount: 134515008, Quantization: "BF16", Parser: "kafila-tools", Parameters: map[string]float64{"temperature": 0.2},
		},
	}
}
