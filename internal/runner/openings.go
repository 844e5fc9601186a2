package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
)

const (
	// openingsEvery is the minimum interval between two requests. It limits a job with much output to one request for each
	// chunk of its log.
	openingsEvery = 20 * time.Millisecond
	// openingsGrace is the time for which output waits for a server that does not answer. Afterwards, the runner asks
	// only every openingsPause, and a job without its server continues.
	openingsGrace   = time.Minute
	openingsPause   = 5 * time.Second
	openingsTimeout = 10 * time.Second // of one request
)

// openings masks the secrets of the environments that a job opens while it runs. The server knows them before the job does,
// so the runner asks for new ones between reading output and passing it on.
type openings struct {
	server Server
	masks  *redact.Set
	notify func(line string)
	log    *logrus.Entry
	retry  time.Duration // pause after a failed request

	mu       sync.Mutex
	known    int64     // the count in the server's last answer
	asked    time.Time // when the last request was sent
	silent   time.Time // when the server began not to answer; zero if it answers
	warned   bool
	withheld bool
}

// await returns when all secrets are masked that the job had opened before the call. It returns false if that is impossible,
// so that output must not be passed on.
func (o *openings) await(ctx context.Context) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		pause := openingsEvery
		if !o.silent.IsZero() && time.Since(o.silent) >= openingsGrace {
			if time.Since(o.asked) < openingsPause {
				return !o.withheld
			}
			pause = 0
		}
		if retry.Sleep(ctx, pause-time.Since(o.asked)) != nil {
			return !o.withheld
		}
		if o.ask(ctx) || ctx.Err() != nil {
			return !o.withheld
		}
		if time.Since(o.silent) >= openingsGrace {
			if !o.warned {
				o.warned = true
				o.notify("warning: the server does not answer, so secrets of environments that the job opened just before may remain visible in this log")
			}
			return !o.withheld
		}
		if retry.Sleep(ctx, retry.Spread(o.retry)) != nil {
			return !o.withheld
		}
	}
}

// ask asks the server, and reports whether it has answered.
func (o *openings) ask(ctx context.Context) bool {
	call, cancel := context.WithTimeout(ctx, openingsTimeout)
	defer cancel()
	o.asked = time.Now()
	opened, err := o.server.OpenedSecrets(call, o.known)
	if protocol.Permanent(err) { // the job has ended for the server, which opens nothing for it
		o.silent = time.Time{}
		return true
	}
	if err != nil {
		if o.silent.IsZero() {
			o.silent = o.asked
			o.log.WithError(err).Warn("asking for the secrets that the job has opened failed; its output waits")
		}
		return false
	}
	o.silent, o.warned, o.known = time.Time{}, false, opened.Count
	secrets := make([]redact.Secret, len(opened.Secrets))
	for i, value := range opened.Secrets {
		secrets[i] = redact.Secret{Name: "a secret of an environment", Value: value}
	}
	// Secrets that have arrived must be masked even if the job is ending.
	err = o.masks.Add(context.WithoutCancel(ctx), secrets...)
	if limit, full := errors.AsType[*redact.LimitError](err); full && !o.withheld {
		o.withheld = true
		o.notify("error: the output that follows is withheld, because the secrets that the job has opened cannot be masked: " + limit.Error())
	}
	return true
}
