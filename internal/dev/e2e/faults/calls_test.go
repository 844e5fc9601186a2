package faults

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// call is the kind of a request, as [faultProxy] recognises it by path and body.
type call string

const (
	callPoll       call = "poll"
	callStatus     call = "deployment status"
	callDefinition call = "definition"
	callHeartbeat  call = "heartbeat"
	callStep       call = "step status"
	callLog        call = "log"
	callResult     call = "result"
	callJournal    call = "batch of a journal"
	callState      call = "state"
	callPack       call = "archive of a policy pack"
	callFindings   call = "results of a policy evaluation"
)

type request struct {
	call   call
	step   int    // of step states and logs, else -1
	phase  string // of heartbeats
	status string // of step states
	body   []byte
}

func recognise(r *http.Request, body []byte) request {
	q := request{step: -1, body: body}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var sent struct {
		Phase  string `json:"phase"`
		Status string `json:"status"`
	}
	if len(body) > 0 && body[0] == '{' {
		_ = json.Unmarshal(body, &sent) // a body that is not JSON sets nothing
	}
	switch {
	case r.URL.Path == "/api/deployments/poll":
		q.call = callPoll
	case strings.HasPrefix(r.URL.Path, "/api/deployments/") && parts[len(parts)-1] == "status":
		q.call = callStatus
	case isJournal(r.URL.Path):
		q.call = callJournal
	case len(parts) == 7 && parts[5] == "export":
		q.call = callState
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/blobs/policy-packs/"):
		q.call = callPack
	case strings.HasPrefix(r.URL.Path, "/api/preview/insights/"):
		q.call = callFindings
	case len(parts) == 4 && strings.HasPrefix(r.URL.Path, "/api/workflow/jobs/"):
		q.call = callDefinition
	case len(parts) == 5 && parts[4] == "heartbeat":
		q.call, q.phase = callHeartbeat, sent.Phase
	case len(parts) == 5 && parts[4] == "result":
		q.call = callResult
	case len(parts) == 6:
		step, err := strconv.Atoi(parts[4])
		if err != nil {
			break
		}
		q.step = step
		switch parts[5] {
		case "log":
			q.call = callLog
		case "status":
			q.call, q.status = callStep, sent.Status
		}
	}
	return q
}
