package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/pb"
)

// managed starts a sidecar of this behaviour under a sidecar manager that restarts quickly.
func managed(t *testing.T, behaviour string) (*sidecar, <-chan struct{}, context.CancelFunc) {
	t.Helper()
	s, err := newSidecar(func(socket string) ([]string, error) {
		return []string{os.Args[0], "test-sidecar", behaviour, "--socket", socket, "--data", t.TempDir()}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.firstPause = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended, starts := make(chan struct{}), make(chan struct{}, 100)
	go func() {
		defer close(ended)
		s.run(ctx, func() { starts <- struct{}{} })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		s.close()
	})
	return s, starts, func() { cancel(); <-ended }
}

func helloPid(t *testing.T, s *sidecar) int {
	t.Helper()
	reply, err := s.client.Hello(t.Context(), &pb.HelloRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return int(reply.Pid)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestSidecar_whenStarted_answersAndItsFolderIsPrivate(t *testing.T) {
	s, _, _ := managed(t, "serve")
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.socket[:strings.LastIndexByte(s.socket, '/')])
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	if !alive(helloPid(t, s)) {
		t.Error("no process")
	}
}

func TestSidecar_whenTheServerEnds_endsInOrder(t *testing.T) {
	s, _, stop := managed(t, "serve")
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := helloPid(t, s)
	begin := time.Now()
	stop()
	if alive(pid) || time.Since(begin) > endTimeout/2 {
		t.Errorf("alive %t after %s", alive(pid), time.Since(begin))
	}
}

func TestSidecar_whenKilled_isStartedAgain(t *testing.T) {
	s, starts, _ := managed(t, "serve")
	<-starts
	first := helloPid(t, s)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-starts:
	case <-time.After(10 * time.Second):
		t.Fatal("not started again")
	}
	if second := helloPid(t, s); second == first || !alive(second) {
		t.Errorf("first %d, second %d", first, second)
	}
}

func TestSidecar_whenItAlwaysDies_isGivenUpInWords(t *testing.T) {
	s, _, _ := managed(t, "die")
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		err := s.await(deadline)
		if err == nil || deadline.Err() != nil {
			t.Fatalf("%v", err)
		}
		if code, sentence := explain(err); code == 503 && strings.Contains(sentence, "is not started again") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSidecar_whenNotFound_saysWhatToDo(t *testing.T) {
	s, err := newSidecar(func(string) ([]string, error) { return nil, errors.New("no sidecar: install one") })
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.run(t.Context(), func() { t.Error("started") })
	if err := s.await(t.Context()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "install one") {
		t.Errorf("%v", err)
	}
}

func TestFindProgram_whenNamed_isThatOne(t *testing.T) {
	t.Setenv(commandVariable, os.Args[0])
	if found, err := findProgram(); err != nil || found[0] != os.Args[0] {
		t.Errorf("%v, %v", found, err)
	}
	t.Setenv(commandVariable, "/nowhere/kafila-sidecar")
	if _, err := findProgram(); err == nil || !strings.Contains(err.Error(), "/nowhere/kafila-sidecar") {
		t.Errorf("%v", err)
	}
}

func TestDataFolder(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	t.Setenv(homeVariable, "")
	if folder, _ := dataFolder(); folder != "/home/ann/.kafila" {
		t.Error(folder)
	}
	t.Setenv(homeVariable, "/data/kafila")
	if folder, _ := dataFolder(); folder != "/data/kafila" {
		t.Error(folder)
	}
}
