// Package seal is the secret of one run of the server. By it the runners know their server, the server its own requests,
// and both the stub models that this run has written. It imports nothing of ours.
package seal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

const keyBytes = 32

// A Key seals words. It is never written to a file: a model that was sealed by an earlier run is as foreign as any.
type Key []byte

// A Purpose keeps what is sealed for one thing from being taken for another.
type Purpose string

// What is sealed.
const (
	Stub   Purpose = "stub"   // a stub model: session, name and slots
	Runner Purpose = "runner" // requests to the runner at a port
	Store  Purpose = "store"  // requests to the server by its own store
	Chat   Purpose = "chat"   // a conversation on its way to the runner
)

// New draws a key.
func New() Key {
	key := make(Key, keyBytes)
	rand.Read(key) // never fails
	return key
}

// Parse reads what Encode wrote.
func Parse(text string) (Key, error) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != keyBytes {
		return nil, errors.New("this is no seal key: runners are started by `ollama serve`, not by hand")
	}
	return key, nil
}

// Encode gives the key as text, for the environment of a runner.
func (k Key) Encode() string { return hex.EncodeToString(k) }

// Of seals words for a purpose: HMAC-SHA256 over each with its length, in hexadecimal digits.
func (k Key) Of(purpose Purpose, words ...string) string {
	mac := hmac.New(sha256.New, k)
	for _, word := range append([]string{string(purpose)}, words...) {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(word))))
		mac.Write([]byte(word))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// Fits is true of the seal of these words, and takes as long for any other.
func (k Key) Fits(seal string, purpose Purpose, words ...string) bool {
	return hmac.Equal([]byte(seal), []byte(k.Of(purpose, words...)))
}
