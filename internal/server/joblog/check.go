package joblog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Missing is the error for a result that cannot be recorded until the sender has sent the rest of
// its log.
type Missing struct{ Logs []protocol.MissingLog }

// Error returns a message that contains the number of incomplete steps.
func (m *Missing) Error() string {
	return fmt.Sprintf("log of %d step(s) is missing; send it and repeat the result", len(m.Logs))
}

// Check syncs a job's log to disk and compares it with the sender's report. If the sender has
// unsent log, Check returns a [*Missing] error. It returns other differences as complaints. It
// reads the streams only if no log is missing.
func (l *Store) Check(ctx context.Context, job store.Job, r protocol.ResultRequest) ([]string, error) {
	sizes := map[int]int64{}
	missing := &Missing{}
	for _, sr := range r.Steps {
		if len(sr.SHA256) > hex.EncodedLen(sha256.Size) {
			return nil, fault.Invalid("the sha256 of step %d is too long", sr.Step)
		}
		if _, seen := sizes[sr.Step]; seen || sr.Step < 0 || sr.Step > len(job.Steps) {
			return nil, fault.Invalid("the result names step %d, which the job does not have or which appears twice", sr.Step)
		}
		size, err := l.Sync(ctx, Key(job.ID, job.Epoch, sr.Step))
		if err != nil {
			return nil, err
		}
		sizes[sr.Step] = size
		if size < min(sr.Bytes, l.limit) && !sr.Gone {
			missing.Logs = append(missing.Logs, protocol.MissingLog{Step: sr.Step, Received: size})
		}
	}
	if len(missing.Logs) > 0 {
		return nil, missing
	}
	var complaints []string
	if r.Truncated {
		complaints = append(complaints, "The log is incomplete: the runner had to drop lines because its disk was full for too long.")
	}
	for _, sr := range r.Steps {
		name := "the agent"
		if sr.Step < len(job.Steps) {
			name = "step " + job.Steps[sr.Step].Name
		}
		complaint, err := l.checkLog(ctx, Key(job.ID, job.Epoch, sr.Step), sizes[sr.Step], sr)
		if err != nil {
			return nil, err
		}
		if complaint != "" {
			complaints = append(complaints, "The log of "+name+" "+complaint)
		}
	}
	return complaints, nil
}

// checkLog returns the difference between a stream and the sender's report, or "" if they match.
func (l *Store) checkLog(ctx context.Context, key string, size int64, sr protocol.StepResult) (string, error) {
	switch {
	case size < min(sr.Bytes, l.limit):
		return fmt.Sprintf("is incomplete: %d of %d bytes arrived.", size, sr.Bytes), nil
	case sr.Bytes > l.limit:
		return fmt.Sprintf("was cut at the limit of %d bytes; it had %d.", l.limit, sr.Bytes), nil
	case size > sr.Bytes:
		return fmt.Sprintf("does not match the report: %d bytes arrived, %d were reported.", size, sr.Bytes), nil
	case sr.SHA256 == "":
		return "", nil
	}
	same, err := l.sameHash(ctx, key, size, sr.SHA256)
	if err != nil || same {
		return "", err
	}
	return "does not match the report: the checksums differ.", nil
}

// prefixHash is the checksum of the beginning of a stream. Stored bytes never change, so it remains
// valid until the stream is removed.
type prefixHash struct {
	sum  hash.Cloner // nil if size is 0
	size int64
}

// add adds the last bytes of a stream, which now has the given size, if they follow the hashed ones.
// Other servers could have stored the bytes before them.
func (h *prefixHash) add(p []byte, size int64) {
	start := size - int64(len(p))
	if start < h.size {
		*h = prefixHash{} // the stream was removed
	}
	if len(p) == 0 || start != h.size {
		return
	}
	if h.sum == nil {
		h.sum = newHash()
	}
	h.sum.Write(p)
	h.size = size
}

func newHash() hash.Cloner {
	//nolint:forcetypeassert // the standard library's hashes are Cloners
	return sha256.New().(hash.Cloner)
}

// sameHash compares the checksum of a stream with the sender's. It reads only the bytes that it did
// not hash when they arrived.
func (l *Store) sameHash(ctx context.Context, key string, size int64, want string) (bool, error) {
	h, offset, err := l.hashed(key, size)
	if err != nil {
		return false, err
	}
	buf, done := buffer()
	defer done()
	for {
		n, err := l.blobs.ReadAt(ctx, key, offset, buf)
		if err != nil {
			return false, err
		}
		if n == 0 {
			return strings.EqualFold(hex.EncodeToString(h.Sum(nil)), want), nil
		}
		h.Write(buf[:n])
		offset += int64(n)
	}
}

// hashed returns a copy of the checksum of the beginning of a stream, and the number of its bytes.
func (l *Store) hashed(key string, size int64) (hash.Hash, int64, error) {
	st := l.open(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.hash.sum == nil || st.hash.size > size {
		return newHash(), 0, nil
	}
	h, err := st.hash.sum.Clone()
	if err != nil {
		return nil, 0, fmt.Errorf("copying a checksum: %w", err)
	}
	return h, st.hash.size, nil
}
