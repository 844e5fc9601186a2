package redact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/words"
)

// Limits of a set. A user who can choose secrets could otherwise use up the memory and the processor of
// the agent that masks them.
const (
	// MaxJobBytes is the limit on the total size of the secrets of one job, in bytes.
	MaxJobBytes = 128 << 10

	// maxBytes is the limit on the total size of all secrets of a set: those of a job, of its agent's
	// host, and those that its steps add.
	maxBytes = 2 * MaxJobBytes

	// maxCost is the limit on the memory of a set in bytes. It applies to all needles, including those
	// derived from a secret. 128 KiB of secrets need about 5 MiB if they are keys and tokens, up to 25
	// MiB if they are random ASCII characters, and 50 MiB if most characters are quotes or outside ASCII.
	maxCost = 80 << 20

	// needleCost is the memory that a needle needs besides its text, in bytes.
	needleCost = 40

	// renewedCost is the part of maxCost that is reserved for renewed secrets.
	renewedCost = 8 << 20

	// membersCost is the limit on the memory for the members of structured secrets, in bytes. It is
	// in addition to maxCost, so that no secret is refused because of its members. Further members
	// are not masked on their own.
	membersCost = 8 << 20
)

// LimitError is the error for secrets that exceed a limit. It contains no secret.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// Bytes returns the total size of the secrets.
func Bytes(secrets []Secret) int {
	size := 0
	for _, secret := range secrets {
		size += len(secret.Value)
	}
	return size
}

// CheckJob returns a [LimitError] if the secrets of a job exceed [MaxJobBytes].
func CheckJob(size int) error {
	if size <= MaxJobBytes {
		return nil
	}
	return &LimitError{fmt.Sprintf("the secrets of this job have %d bytes in all, and at most %d can be masked: pass large files in another way, for example in a secret store that the program reads", size, MaxJobBytes)}
}

// builder collects the needles of secrets.
type builder struct {
	limit   int // of cost
	cost    int
	members int // cost of the members of structured secrets
	needles []string
	chunk   strings.Builder     // contains the text of the last needles
	batch   map[string]struct{} // needles of the current batch
}

// chunkBytes is the size of the pieces of memory that contain the text of needles. An allocation for
// each needle would need more memory in all.
const chunkBytes = 32 << 10

// add adds the needles of a secret and of its secret members.
func (b *builder) add(ctx context.Context, secret string) error {
	if err := b.forms(ctx, secret, &b.cost, b.limit); err != nil {
		return err
	}
	for _, member := range secretMembers(secret) {
		if b.members+4*len(member) > membersCost {
			break
		}
		if err := b.forms(ctx, member, &b.members, membersCost); err != nil {
			if _, full := errors.AsType[*LimitError](err); full {
				break
			}
			return err
		}
	}
	return nil
}

// forms adds the needles of a text, and their cost to cost.
func (b *builder) forms(ctx context.Context, secret string, cost *int, limit int) error {
	if b.batch == nil {
		b.batch = map[string]struct{}{}
	}
	for batch := range forms(secret) {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("collecting the secrets to mask: %w", err)
		}
		clear(b.batch)
		for _, form := range batch {
			for piece := range pieces(visible(form)) {
				if _, known := b.batch[piece]; known {
					continue
				}
				b.batch[piece] = struct{}{}
				*cost += len(piece) + needleCost
				if *cost > limit {
					return &LimitError{fmt.Sprintf("the secrets have too many lines and special characters to be masked in all encodings (more than %s): use fewer or smaller secrets", words.Bytes(limit))}
				}
				b.needles = append(b.needles, b.keep(piece))
			}
		}
	}
	return nil
}

// keep returns a copy of a needle. The original is part of a form, which would stay in memory.
func (b *builder) keep(piece string) string {
	if b.chunk.Cap()-b.chunk.Len() < len(piece) {
		b.chunk = strings.Builder{}
		b.chunk.Grow(chunkBytes)
	}
	start := b.chunk.Len()
	b.chunk.WriteString(piece)
	return b.chunk.String()[start:]
}

// sorted returns the needles in byte order, without duplicates.
func (b *builder) sorted() []string {
	slices.Sort(b.needles)
	return slices.Compact(b.needles)
}

// merge returns the union of two sorted lists without duplicates.
func merge(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch order := strings.Compare(a[0], b[0]); {
		case order < 0:
			all, a = append(all, a[0]), a[1:]
		case order > 0:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}
