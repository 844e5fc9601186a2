package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/dev/lab/child"
)

// explain prints an error and the last lines of each program's log.
func (q *quickstart) explain(err error) {
	q.ui.fail("The quickstart failed: " + err.Error())
	if q.server != nil {
		q.showLog("server", q.server.LogFile)
	}
	if q.agent != nil {
		q.showLog("agent", q.agent.LogFile)
	}
}

func (q *quickstart) showLog(who, path string) {
	const lines = 25
	q.ui.note("last lines of the %s's log:", who)
	text := strings.TrimRight(child.Tail(path, lines), "\n")
	for _, secret := range q.secrets {
		text = strings.ReplaceAll(text, secret, "[token]")
	}
	_, _ = q.ui.lines().Write([]byte(text + "\n"))
}

func (q *quickstart) cancelDeployments() error {
	select {
	case <-q.server.Process.Done():
		return nil
	default:
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopPatience,
		fmt.Errorf("a cancelled deployment did not finish within %s and may still be running", stopPatience))
	defer cancel()
	cancelled := map[string]bool{}
	return child.Poll(ctx, statusInterval, func() (bool, error) {
		var list struct {
			Deployments []struct {
				ID      string `json:"id"`
				Status  string `json:"status"`
				Project string `json:"projectName"`
				Stack   string `json:"stackName"`
			} `json:"deployments"`
		}
		if err := q.server.Call(ctx, "GET", "/api/orgs/"+q.server.Organization+"/deployments?pageSize=100", nil, &list); err != nil {
			return false, errors.Join(context.Cause(ctx), err)
		}
		unfinished := 0
		for _, d := range list.Deployments {
			if ended(d.Status) {
				continue
			}
			unfinished++
			if cancelled[d.ID] {
				continue
			}
			cancelled[d.ID] = true
			q.ui.say("cancelling the deployment of %s/%s", d.Project, d.Stack)
			path := strings.Join([]string{"/api/stacks", q.server.Organization, d.Project, d.Stack, "deployments", d.ID, "cancel"}, "/")
			if err := q.server.Call(ctx, "POST", path, nil, nil); err != nil {
				return false, err
			}
		}
		return unfinished == 0, nil
	})
}

func ended(status string) bool {
	return status == "succeeded" || status == "failed" || status == "skipped"
}

func (q *quickstart) cleanUp() {
	for _, undo := range slices.Backward(q.undo) {
		if err := undo(); err != nil {
			q.ui.note("cleaning up: %v", err)
		}
	}
	if q.server != nil {
		q.ui.say("stopped everything and removed %s", q.dir)
	}
}
