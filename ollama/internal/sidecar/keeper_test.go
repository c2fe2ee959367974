package sidecar

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

// The test binary is also the sidecar that it starts, which behaves as its second argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "test-sidecar" {
		fake.RunSidecar(os.Args[2:])
		return
	}
	m.Run()
}

// managed starts a sidecar of this behaviour under a keeper that restarts it quickly.
func managed(t *testing.T, behaviour string) (*Keeper, <-chan struct{}, context.CancelFunc) {
	t.Helper()
	k, err := New(func(socket string) ([]string, error) {
		return []string{os.Args[0], "test-sidecar", behaviour, "--socket", socket, "--data", t.TempDir()}, nil
	}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, starts := make(chan struct{}), make(chan struct{}, 100)
	go func() {
		defer close(ended)
		k.Run(ctx, func() {}, func() { starts <- struct{}{} })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		k.Close()
	})
	return k, starts, func() { cancel(); <-ended }
}

func helloPid(t *testing.T, k *Keeper) int {
	t.Helper()
	reply, err := k.client.Hello(t.Context(), &pb.HelloRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return int(reply.Pid)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestSidecar_whenStarted_answersAndItsFolderIsPrivate(t *testing.T) {
	k, _, _ := managed(t, "serve")
	if err := k.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(k.socket[:strings.LastIndexByte(k.socket, '/')])
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	if !alive(helloPid(t, k)) {
		t.Error("no process")
	}
}

func TestSidecar_whenTheServerEnds_endsInOrder(t *testing.T) {
	k, _, stop := managed(t, "serve")
	if err := k.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := helloPid(t, k)
	begin := time.Now()
	stop()
	if alive(pid) || time.Since(begin) > endTimeout/2 {
		t.Errorf("alive %t after %s", alive(pid), time.Since(begin))
	}
}

func TestSidecar_whenKilled_isStartedAgain(t *testing.T) {
	k, starts, _ := managed(t, "serve")
	<-starts
	first := helloPid(t, k)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-starts:
	case <-time.After(10 * time.Second):
		t.Fatal("not started again")
	}
	if second := helloPid(t, k); second == first || !alive(second) {
		t.Errorf("first %d, second %d", first, second)
	}
}

func TestSidecar_whenItAlwaysDies_isGivenUpInWords(t *testing.T) {
	k, _, _ := managed(t, "die")
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		err := k.Await(deadline)
		if err == nil || deadline.Err() != nil {
			t.Fatalf("%v", err)
		}
		if code, sentence := Explain(err); code == 503 && strings.Contains(sentence, "is not started again") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSidecar_whenNotFound_saysWhatToDo(t *testing.T) {
	k, err := New(func(string) ([]string, error) { return nil, errors.New("no sidecar: install one") }, FirstPause)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Run(t.Context(), func() {}, func() { t.Error("started") })
	if err := k.Await(t.Context()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "install one") {
		t.Errorf("%v", err)
	}
}

// kept starts a keeper of this command and gives what it says as soon as it can't serve.
func kept(t *testing.T, command ...string) string {
	t.Helper()
	k, err := New(func(string) ([]string, error) { return command, nil }, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx, func() {}, func() { t.Error("started") }) }()
	t.Cleanup(func() { cancel(); <-ended; k.Close() })
	_, sentence := Explain(k.Await(t.Context()))
	return sentence
}

func TestSidecar_whenItEndsWithASentence_thatSentenceIsShown(t *testing.T) {
	const script = `printf 'INFO some log\nkafila-sidecar: this process may open 20 files' >&2; echo ' at once' >&2; exit 1`
	sentence := kept(t, "sh", "-c", script)
	if !strings.Contains(sentence, "(this process may open 20 files at once)") || strings.Contains(sentence, "exit status") {
		t.Error(sentence)
	}
}

func TestSidecar_whenItEndsWithoutASentence_itsStatusIsShown(t *testing.T) {
	if sentence := kept(t, "sh", "-c", "echo something else >&2; exit 7"); !strings.Contains(sentence, "exit status 7") {
		t.Error(sentence)
	}
}

func TestSidecar_whenWhatItStartedHoldsItsOutputOpen_itsEndIsSeenAllTheSame(t *testing.T) {
	begin := time.Now()
	if sentence := kept(t, "sh", "-c", "sleep 60 & exit 7"); !strings.Contains(sentence, "exit status 7") {
		t.Error(sentence)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Error(took)
	}
}

func TestSidecar_whenItSaysTooMuch_onlyTheBeginningCounts(t *testing.T) {
	var log strings.Builder
	said := &lastWords{out: &log}
	long := spoken + strings.Repeat("x", 3*longestSentence) + "\n"
	said.Write([]byte(long))
	if got := said.sentence(); len(got) != longestSentence-len(spoken) || log.String() != long {
		t.Error(len(got), log.Len())
	}
}

func TestDial_whenThePathHoldsOddCharacters_findsTheSocket(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "50%41 #s?")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "s.sock")
	go fake.RunSidecar([]string{"serve", "--socket", socket})
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewSidecarClient(conn).Hello(t.Context(), &pb.HelloRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
}
