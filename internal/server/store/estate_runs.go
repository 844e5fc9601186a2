package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run is one of the last runs of a stack.
type Run struct {
	Result     RunResult
	Took       time.Duration // in whole seconds
	Deployment bool          // whether Number is that of a deployment, or of an update
	Number     int64
}

// Runs are the last runs of a stack, oldest first, in the form in which they are stored: words such as s73d41, for a
// success after 73 seconds of deployment 41, or f5u12, for the failure of update 12.
type Runs string

// MaxRuns is the number of runs that are stored of a stack.
const MaxRuns = 20

// letters are the results of finished runs in [Runs].
var letters = map[RunResult]string{RunSucceeded: "s", RunFailed: "f", RunCancelled: "c", RunDrift: "d"}

func (r Run) key() string {
	kind := "u"
	if r.Deployment {
		kind = "d"
	}
	return kind + strconv.FormatInt(r.Number, 10)
}

func (r Run) word() string {
	return fmt.Sprintf("%s%d%s", letters[r.Result], max(0, int64(r.Took/time.Second)), r.key())
}

// List returns the runs. It leaves out what it cannot read.
func (s Runs) List() []Run {
	var list []Run
	for word := range strings.FieldsSeq(string(s)) {
		at := strings.LastIndexAny(word, "du")
		if at < 2 {
			continue
		}
		seconds, err := strconv.ParseInt(word[1:at], 10, 32)
		number, invalid := strconv.ParseInt(word[at+1:], 10, 64)
		if err != nil || invalid != nil {
			continue
		}
		for result, letter := range letters {
			if letter == word[:1] {
				list = append(list, Run{Result: result, Took: time.Duration(seconds) * time.Second, Deployment: word[at] == 'd', Number: number})
			}
		}
	}
	return list
}

// with returns the runs with another one, which replaces an earlier result of the same run.
func (s Runs) with(r Run) Runs {
	words := strings.Fields(string(s))
	if i := slices.IndexFunc(words, func(word string) bool {
		at := strings.LastIndexAny(word, "du")
		return at > 1 && word[at:] == r.key()
	}); i >= 0 {
		words[i] = r.word()
	} else {
		words = append(words, r.word())
	}
	return Runs(strings.Join(words[max(0, len(words)-MaxRuns):], " "))
}
