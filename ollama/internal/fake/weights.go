package fake

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/pb"
)

func (s *Sidecar) ListModels(context.Context, *pb.ListModelsRequest) (*pb.ListModelsReply, error) {
	return &pb.ListModelsReply{Models: s.Named}, nil
}

func (s *Sidecar) ListWeights(context.Context, *pb.ListWeightsRequest) (*pb.ListWeightsReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.ListWeightsReply{Weights: slices.Clone(s.Weights), FreeDiskBytes: 40e9, Folder: "/models"}, nil
}

func (s *Sidecar) RemoveWeights(_ context.Context, r *pb.RemoveWeightsRequest) (*pb.FreedReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.Weights, func(one *pb.KeptWeights) bool { return one.Model == r.Model }) {
		return nil, status.Errorf(codes.NotFound, "no weights of %s are on this machine", r.Model)
	}
	freed := s.remove(func(one *pb.KeptWeights) bool {
		return one.Model == r.Model && strings.HasPrefix(one.Revision, r.Revision)
	})
	if freed == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is used by a session on this machine", r.Model)
	}
	return &pb.FreedReply{Bytes: freed}, nil
}

func (s *Sidecar) PruneWeights(_ context.Context, r *pb.PruneWeightsRequest) (*pb.FreedReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := float64(time.Now().Unix()) - r.GetUnusedForS()
	return &pb.FreedReply{Bytes: s.remove(func(one *pb.KeptWeights) bool { return one.LastUsedS <= before })}, nil
}

// remove takes away the weights meant that nobody uses, and says what that frees.
func (s *Sidecar) remove(meant func(*pb.KeptWeights) bool) (bytes uint64) {
	s.Weights = slices.DeleteFunc(s.Weights, func(one *pb.KeptWeights) bool {
		goes := meant(one) && !one.InUse
		if goes {
			bytes += one.DiskBytes
		}
		return goes
	})
	return bytes
}
