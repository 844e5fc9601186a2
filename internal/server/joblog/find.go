package joblog

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"regexp/syntax"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

const (
	maxQuery = 1000 // bytes
	maxHits  = 1000
	// findTime bounds a search. A busy machine with one core reads a million lines in it.
	findTime = 20 * time.Second
	// slotTime bounds the wait for a slot.
	slotTime = 5 * time.Second
	// maxFinds is the number of searches that run at the same time.
	maxFinds = 4
)

// Query selects lines of a log.
type Query struct {
	Text   string
	Regexp bool // Text is a regular expression
	Case   bool // upper and lower case differ
	// Errors selects the lines that state an error, instead of Text.
	Errors bool
}

// Hit is a line that a search has found. Lines start at 0.
type Hit struct {
	Stream int
	Line   int64
}

// Found is the result of a search.
type Found struct {
	Hits []Hit // the first 1000
	// Total is the number of matching lines.
	Total int64
	// Partial reports that the search took too long and covers only a part of the log.
	Partial bool
}

// Find searches all streams of a claim, in their order. It sees the text as pages show it.
func (l *Store) Find(ctx context.Context, job store.Job, epoch int64, q Query) (Found, error) {
	if err := CheckStream(job, epoch, 0); err != nil {
		return Found{}, err
	}
	select {
	case l.finds <- struct{}{}:
		defer func() { <-l.finds }()
	case <-ctx.Done():
		return Found{}, ctx.Err()
	case <-time.After(slotTime):
		return Found{}, fault.New(fault.KindUnavailable, "too many searches at the same time; retry later")
	}
	search, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	match, err := q.matcher() // in a slot, because compiling takes time and memory
	if err != nil {
		return Found{}, err
	}
	var out Found
	for stream := range Streams(job) {
		if job.LogExpired {
			break
		}
		var line int64
		var plain []byte
		err := l.each(search, Key(job.ID, epoch, stream), 0, func(f protocol.Frame, _ int) bool {
			text := f.Text
			if bytes.IndexByte(text, 0x1b) >= 0 || bytes.IndexByte(text, '\r') >= 0 {
				plain = termtext.Plain(plain[:0], lastState(text))
				text = plain
			}
			out.note(match(text[:min(len(text), maxRowText)]), stream, line)
			line++
			return search.Err() == nil
		})
		if err == nil {
			err = search.Err()
		}
		if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			out.Partial = true
			return out, nil
		}
		if err != nil {
			return Found{}, err
		}
	}
	for i, n := range notes(job, epoch) {
		out.note(match([]byte(n.Text)), Streams(job), int64(i))
	}
	return out, nil
}

func (r *Found) note(matches bool, stream int, line int64) {
	if !matches {
		return
	}
	if r.Total++; len(r.Hits) < maxHits {
		r.Hits = append(r.Hits, Hit{stream, line})
	}
}

// matcher returns a function that reports whether a line without colours matches.
func (q Query) matcher() (func(text []byte) bool, error) {
	if q.Errors {
		return func(text []byte) bool {
			s, _ := severity(text)
			return s == Error
		}, nil
	}
	if q.Text == "" || len(q.Text) > maxQuery {
		return nil, fault.Invalid("the text to find must have 1 to %d bytes", maxQuery)
	}
	if !q.Regexp {
		if q.Case {
			want := []byte(q.Text)
			return func(text []byte) bool { return bytes.Contains(text, want) }, nil
		}
		if want, ok := lowerASCII(nil, []byte(q.Text)); ok {
			var folded []byte
			return func(text []byte) bool {
				folded, _ = lowerASCII(folded[:0], text)
				return bytes.Contains(folded, want)
			}, nil
		}
	}
	pattern := q.Text
	if !q.Regexp {
		pattern = regexp.QuoteMeta(pattern)
	}
	if !q.Case {
		pattern = "(?i)" + pattern
	}
	if err := checkCost(pattern); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fault.Invalid("the regular expression is invalid: %v", err)
	}
	return re.Match, nil
}

// maxRegexp bounds the size of a compiled regular expression, in instructions. A match cannot be
// interrupted, and its time is the product of this size and the length of a line.
const maxRegexp = 1000

// checkCost returns an error for an invalid or too expensive regular expression.
func checkCost(pattern string) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fault.Invalid("the regular expression is invalid: %v", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fault.Invalid("the regular expression is invalid: %v", err)
	}
	if len(program.Inst) > maxRegexp {
		return fault.Invalid("the regular expression is too complex; use fewer or smaller repetitions")
	}
	return nil
}

// lowerASCII appends text to dst with ASCII letters in lower case. ascii reports whether text has no
// other letters.
func lowerASCII(dst, text []byte) (lower []byte, ascii bool) {
	ascii = true
	for _, c := range text {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		ascii = ascii && c < 0x80
		dst = append(dst, c)
	}
	return dst, ascii
}
