package checkup

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/reach"
	"workflowagent/internal/words"
)

// Limits for clock skew. Some issuers' tokens are valid for only a few minutes.
const (
	skewWarn = 30 * time.Second
	skewFail = 5 * time.Minute
)

// DNS returns the result of resolving the host of a traced URL.
func DNS(t *reach.Trace) Result {
	if !t.Reached(reach.StageDNS) {
		return Fail(t.Problem, t.Advice)
	}
	return OK(Addresses(t))
}

// Addresses describes the addresses of the host of a traced URL.
func Addresses(t *reach.Trace) string {
	return fmt.Sprintf("%s is %s", t.Host, strings.Join(t.Addresses, ", "))
}

// TCP returns the result of connecting to the host of a traced URL.
func TCP(t *reach.Trace) Result {
	switch {
	case !t.Reached(reach.StageConnect):
		return Fail(t.Problem, t.Advice)
	case len(t.Refused) > 0:
		return Warn(t.Connected+" accepts connections, but other addresses of the host do not",
			"fix those addresses, or remove them from DNS: each attempt costs time", t.Refused...)
	}
	return OK(t.Connected + " accepts connections")
}

// TLS returns the result of negotiating TLS with the host of a traced https URL.
func TLS(t *reach.Trace) Result {
	switch {
	case t.Failed == reach.StageTLS:
		return withChain(Fail(t.Problem, t.Advice), t)
	case len(t.Certificates) == 0:
		return Fail(t.Problem, t.Advice) // the trace failed at an earlier step
	}
	leaf := t.Certificates[0]
	found := fmt.Sprintf("%s, certificate of %s, valid until %s", t.TLSVersion, leaf.Subject, leaf.NotAfter.Format(time.DateOnly))
	if t.PrivateCA {
		found += ", trusted by ca_certificate_file"
	}
	for _, c := range t.Certificates {
		if now := time.Now(); reach.ExpiresSoon(c.NotBefore, c.NotAfter, now) {
			return withChain(Warn(found, fmt.Sprintf("renew the certificate of %s, which expires in %d hours", c.Subject, int(c.NotAfter.Sub(now).Hours()))), t)
		}
	}
	return withChain(OK(found), t)
}

func withChain(r Result, t *reach.Trace) Result {
	for _, c := range t.Certificates {
		r.Details = append(r.Details, fmt.Sprintf("%s, by %s, until %s", c.Subject, c.Issuer, c.NotAfter.Format(time.DateOnly)))
	}
	return r
}

// Clock compares the server's clock with the clock of the machine or container on which the trace t
// was made.
func Clock(t *reach.Trace) Result {
	if !t.SkewKnown {
		return Skip("the server does not report its time")
	}
	return Skew(t.Skew, "the server's")
}

// Skew returns the result of comparing this machine's clock, which is ahead by skew, with another
// one, such as "the server's".
func Skew(skew time.Duration, other string) Result {
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	found := fmt.Sprintf("the clock is %s %s %s", words.Duration(skew.Round(time.Second)), direction, other)
	advice := "set the clock, preferably through a time service (NTP): otherwise tokens and certificates seem expired or not yet valid"
	switch {
	case skew > skewFail:
		return Fail(found, advice)
	case skew > skewWarn:
		return Warn(found, advice)
	case skew < 2*time.Second:
		return OK("the clock agrees with " + other)
	}
	return OK(found)
}
