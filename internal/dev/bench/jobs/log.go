package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type times struct{ began, ended time.Time }

// parseTimes parses the output of stamp: two times in nanoseconds.
func parseTimes(text string) (times, error) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return times{}, fmt.Errorf("parsing the stamp %q: it must have two times", text)
	}
	var at [2]time.Time
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return times{}, fmt.Errorf("parsing a stamp: %w", err)
		}
		at[i] = time.Unix(0, n)
	}
	return times{at[0], at[1]}, nil
}

func readTimes(file string) (times, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return times{}, fmt.Errorf("reading the job's stamp: %w", err)
	}
	return parseTimes(string(data))
}

type jobTimes struct {
	queued, finished time.Time // when the enqueue request returned; according to the server
	first, last      times     // stamps of the job's first and last process
}

// pager returns the text of a log from token on, or from the beginning if token is "". next is the token
// for the next page. At the end of the log, next equals token if the log might still grow, and is ""
// otherwise.
type pager func(ctx context.Context, token string) (text, next string, err error)

// pages reads the log of a job as the stock CLI does. A line that the job printed in parts can arrive in
// parts, of which only the last has a newline.
func (p *product) pages(job string) pager {
	return func(ctx context.Context, token string) (text, next string, err error) {
		path := p.StackPath(p.stack) + "/deployments/" + job + "/logs"
		if token != "" {
			path += "?continuationToken=" + token
		}
		resp, err := p.Send(ctx, http.MethodGet, path, nil, nil)
		if err != nil {
			return "", "", err
		}
		defer func() { _ = resp.Body.Close() }()
		var answer struct {
			Lines     []struct{ Line string }
			NextToken string
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return "", "", fmt.Errorf("reading a log: %w", err)
		}
		var all strings.Builder
		for _, line := range answer.Lines {
			all.WriteString(line.Line)
		}
		return all.String(), answer.NextToken, nil
	}
}

// countLines reads a job's log and counts the errors in its numbered lines from 0 to n: each line
// must occur exactly once and in order.
func countLines(ctx context.Context, page pager, n int) (wrong int, err error) {
	next := 0
	err = lines(ctx, page, func(line string) {
		i, ok := lineNumber(line)
		switch {
		case !ok:
		case i == next:
			next++
		case i > next:
			wrong += i - next // the gap
			next = i + 1
		default:
			wrong++ // repeated, or out of order
		}
	})
	return wrong + max(0, n-next), err
}

func lineNumber(line string) (int, bool) {
	number, rest, ok := strings.Cut(line, " ")
	if !ok || len(number) != 8 || !strings.HasPrefix(rest, "the quick") {
		return 0, false
	}
	i, err := strconv.Atoi(number)
	return i, err == nil
}

// lines calls f with each line of a log.
func lines(ctx context.Context, page pager, f func(line string)) error {
	for token, begun := "", ""; ; {
		text, next, err := page(ctx, token)
		if err != nil {
			return err
		}
		begun = eachLine(begun+text, f)
		if next == "" || next == token && text == "" {
			if begun != "" {
				f(begun)
			}
			return nil
		}
		token = next
	}
}

// eachLine calls f with each whole line of text and returns the rest.
func eachLine(text string, f func(line string)) (rest string) {
	for {
		line, after, whole := strings.Cut(text, "\n")
		if !whole {
			return text
		}
		f(line)
		text = after
	}
}
