package faults

import (
	"net/http"
	"testing"
	"time"
)

// meddling meddles with the first n matching calls, from the claim on, and checks their number.
func meddling(n int, m meddle, matches ...func(request) bool) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		var rules []*rule
		for _, match := range matches {
			rules = append(rules, a.proxy.on(match, n, m))
		}
		a.enqueueFree()
		for _, rl := range rules {
			rl.awaitHits(a.t, n)
		}
	}
}

func claiming(spoil func(w http.ResponseWriter, a answer)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		a.proxy.spoilClaims(func(nth int) bool { return nth <= 2 }, spoil)
		a.enqueueFree()
		a.eventually(patience, "two claims are spoilt", func() (bool, error) { return a.proxy.spoiltClaims() == 2, nil })
	}
}

func outage(code, after int) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		a.running()
		broken := a.proxy.on(anyCall, -1, refuse(code, after))
		a.resume()
		broken.awaitHits(a.t, 3)
		a.pass(longer(8*time.Second, time.Minute))
		broken.lift()
	}
}

func anyCall(request) bool { return true }

var eachJobCall = []func(request) bool{
	is(callDefinition), beat("starting"), beat("running"), is(callStep), runnerLog, is(callResult),
}

// eager are settings of an agent that repeats a poll earlier than after 20 s.
var eager = []string{"request_retry_wait=500ms", "circuit_breaker_failures=100"}

var networkRows = []faultRow{
	{phase: inClaimed, agent: eager, fault: "the response with the claim is lost, twice", want: kept, do: claiming(lose)},
	{phase: inClaimed, agent: eager, fault: "the response with the claim is truncated, twice", want: kept, do: claiming(func(w http.ResponseWriter, a answer) {
		a.head(w, len(a.body)/2)
		_, _ = w.Write(a.body[:len(a.body)/2])
	})},
	{phase: inClaimed, agent: eager, fault: "the response with the definition is lost, twice", want: kept, do: meddling(2, dropAnswer, is(callDefinition))},
	{phase: inClaimed, agent: eager, fault: "the connection is reset during the definition, three times", want: kept, do: meddling(3, tearAnswer, is(callDefinition))},
	{phase: inClaimed, fault: "the response to the agent's heartbeat is lost", want: kept, do: func(a *arena) {
		lost := a.proxy.on(beat("preparing"), 1, dropAnswer)
		held := pins[inClaimed](a.proxy) // or the job is prepared before the heartbeat arrives
		a.enqueueFree()
		lost.await(a.t)
		held.lift()
	}},
	{phase: inAsking, fault: "the response that grants leave is lost, twice", want: kept, do: meddling(2, dropAnswer, beat("starting"))},
	{phase: inRunning, fault: "the response to the runner's heartbeat is lost", want: kept, do: meddling(1, dropAnswer, beat("running"))},
	{phase: inRunning, fault: "responses to step states are lost, three times", want: kept, do: meddling(3, dropAnswer, is(callStep))},
	{phase: inRunning, fault: "responses to the log are lost, three times", want: kept, do: meddling(3, dropAnswer, runnerLog)},
	{phase: inRunning, fault: "the connection is reset during a piece of log, three times", want: kept, do: meddling(3, tearRequest, runnerLog)},
	{phase: inRunning, fault: "the connection is reset during the response to the log, three times", want: kept, do: meddling(3, tearAnswer, runnerLog)},
	{phase: inReporting, fault: "the connection is reset during the result, twice", want: kept, do: meddling(2, tearRequest, is(callResult))},
	{phase: inReported, fault: "the response to the result is lost, twice", want: kept, do: meddling(2, dropAnswer, is(callResult))},
	{phase: inReported, fault: "the connection is reset during the response to the result, twice", want: kept, do: meddling(2, tearAnswer, is(callResult))},
	{phase: "all", agent: eager, fault: "the first response to every kind of call is truncated JSON", want: kept, do: meddling(1, truncateAnswer, eachJobCall...)},
	{phase: "all", agent: eager, fault: "the first three calls of every kind get a 502", want: kept, do: meddling(3, refuse(http.StatusBadGateway, 0), is(callDefinition), beat("starting"), runnerLog, is(callStep), is(callResult))},
	{phase: "all", fault: "every call and response trickles", want: kept, do: func(a *arena) {
		slow := a.proxy.on(anyCall, -1, trickle)
		a.enqueueFree()
		a.status(patience, "succeeded")
		slow.awaitHits(a.t, 10)
		slow.lift()
	}},
	{phase: inRunning, fault: "every call gets a 503 for a minute", want: kept, scaled: "8 s", do: outage(http.StatusServiceUnavailable, 0)},
	{phase: inRunning, fault: "every call gets a 503 with Retry-After for a minute", want: kept, scaled: "8 s", do: outage(http.StatusServiceUnavailable, 3)},
	{phase: inRunning, fault: "every call gets a 429 with Retry-After for a minute", want: kept, scaled: "8 s", do: outage(http.StatusTooManyRequests, 3)},
	{phase: inRunning, fault: "every call gets a 500 for a minute", want: kept, scaled: "8 s", do: outage(http.StatusInternalServerError, 0)},
}

func TestFaultNetwork(t *testing.T) { runRows(t, networkRows, processes) }
