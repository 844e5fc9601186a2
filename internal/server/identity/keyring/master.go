package keyring

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/termtext"
)

// masterKeySize is the size of the master key in bytes (AES-256).
const masterKeySize = 32

const (
	// commandTime limits the command of [Source], which can call a service over the network.
	commandTime = time.Minute
	// maxKeyFile is the size of the largest file with a master key, in bytes. Real ones are much smaller.
	maxKeyFile = 4 << 10
	// maxCommandOutput limits each of the command's outputs in bytes.
	maxCommandOutput = 64 << 10
	// maxSaid limits what an error repeats of it, in bytes.
	maxSaid = 500
)

// Source is where the master key comes from: the output of a shell command, or else a file.
type Source struct {
	Command string
	File    string
	// Create creates the file with a new key if it is missing, readable only for its owner.
	Create bool
}

// String names the source in messages.
func (s Source) String() string {
	if s.Command != "" {
		return "the output of the command for the master key"
	}
	return "the file " + s.File
}

// Load returns the master key.
func (s Source) Load(ctx context.Context) ([]byte, error) {
	var text []byte
	var err error
	if s.Command != "" {
		text, err = s.output(ctx)
	} else {
		text, err = boundedfile.Read(s.File, maxKeyFile)
		if errors.Is(err, fs.ErrNotExist) && s.Create {
			return createMasterKey(s.File)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the master key: %w", err)
	}
	key, err := parseMasterKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s %w", s, err)
	}
	return key, nil
}

// Text returns the master key in base64, as a file contains it. It creates no file.
func (s Source) Text(ctx context.Context) ([]byte, error) {
	s.Create = false
	key, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(key) + "\n"), nil
}

func parseMasterKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != masterKeySize {
		return nil, fmt.Errorf("must contain a master key: %d bytes in base64", masterKeySize)
	}
	return key, nil
}

// output runs the command. Its standard output, which can contain the key, is in no error.
func (s Source) output(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var stdout, stderr limited
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Command)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.text, nil
	case stdout.full():
		return nil, fmt.Errorf("the command for it prints more than %d bytes", maxCommandOutput)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command for it did not end within %s: %w", commandTime, context.Cause(ctx))
	}
	if last := keyText.ReplaceAllStringFunc(termtext.LastLine(string(stderr.text), maxSaid), hideKey); last != "" {
		return nil, fmt.Errorf("the command for it failed: %w: %s", err, last)
	}
	return nil, fmt.Errorf("the command for it failed: %w", err)
}

// keyText matches text that can be a part of a master key in base64 or hexadecimal.
var keyText = regexp.MustCompile(`[A-Za-z0-9+/=]{16,}`)

// maxWord is more than the length of a word in messages, such as AccessDeniedException.
const maxWord = 31

// hideKey hides what [keyText] matches, except words and paths. A part of a key that is as long as a word contains
// other characters than letters.
func hideKey(text string) string {
	pieces := []string{text}
	if strings.HasPrefix(text, "/") {
		pieces = strings.Split(text, "/")
	}
	for _, p := range pieces {
		if len(p) > maxWord || len(p) >= 16 && strings.ContainsAny(p, "0123456789+/=") {
			return "[REDACTED]"
		}
	}
	return text
}

// limited keeps the first bytes of an output. The program cannot write more.
type limited struct{ text []byte }

func (l *limited) full() bool { return len(l.text) == maxCommandOutput }

// Write implements [io.Writer].
func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), maxCommandOutput-len(l.text))
	l.text = append(l.text, p[:n]...)
	if l.full() {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func createMasterKey(path string) ([]byte, error) {
	key := make([]byte, masterKeySize)
	rand.Read(key)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the master key: %w", err)
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return nil, fmt.Errorf("writing the master key: %w", err)
	}
	return key, nil
}

func newMaster(key []byte) (tink.AEAD, error) {
	if len(key) != masterKeySize {
		return nil, fmt.Errorf("the master key has %d bytes instead of %d", len(key), masterKeySize)
	}
	master, err := subtle.NewAESGCM(key)
	return master, fault.While(err, "preparing the master key")
}

// Derive returns a key for one purpose, which does not reveal the master key.
func Derive(masterKey []byte, purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, masterKey, nil, purpose, sha256.Size)
	return key, fault.While(err, "deriving a key")
}

// Derive returns a key for one purpose from the master key of the ring.
func (s *Ring) Derive(purpose string) ([]byte, error) { return Derive(s.masterKey, purpose) }
