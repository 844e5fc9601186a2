package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
)

// browser is a signed-in session of the console.
type browser struct {
	p      *product
	cookie string
}

func (p *product) signIn(ctx context.Context, token string) (*browser, error) {
	form := strings.NewReader(url.Values{"token": {token}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/-/login", form)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := p.HTTP.Transport.RoundTrip(req) // without following the redirect
	if err != nil {
		return nil, fmt.Errorf("signing in: %w", err)
	}
	_ = resp.Body.Close()
	for _, c := range resp.Cookies() {
		if strings.Contains(c.Name, "session") { // with the port after it
			return &browser{p, c.Name + "=" + c.Value}, nil
		}
	}
	return nil, fmt.Errorf("signing in: %s without a session", resp.Status)
}

// read requests a page.
func (b *browser) read(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.p.URL+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Cookie", b.cookie)
	req.Header.Set("Accept", "text/html")
	resp, err := b.p.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// Pages measures the HTML of the console's pages on a large server.
func Pages(ctx context.Context, run *figures.Run) error {
	stacks, each10 := figures.Pick(run, 10_000, 1000), 10
	const queued, resources = 50, 1000
	p, err := start(ctx, run, site.Options{}, queued+1)
	if err != nil {
		return err
	}
	defer p.Close()
	// Stack 0 has a state, and a finished deployment, of which the others are copies.
	if err := p.Call(ctx, http.MethodPost, p.StackPath(p.stack(0))+"/import", json.RawMessage(site.State(p.stack(0), resources)), nil); err != nil {
		return err
	}
	if err := p.runOne(ctx, 0); err != nil {
		return err
	}
	run.Say("  copying %d stacks and %d deployments", stacks, stacks*each10)
	if err := p.multiply(ctx, stacks, each10); err != nil {
		return err
	}
	for i := range queued {
		if _, err := p.enqueue(ctx, i+1); err != nil {
			return err
		}
	}
	session, err := p.signIn(ctx, p.Token)
	if err != nil {
		return err
	}
	org := "/" + p.Organization
	stack := org + "/" + site.Project + "/" + p.stack(0)
	pages := map[string]string{
		"home": org, "stacks": org + "/-/stacks", "stacks of a project": org + "/" + site.Project, "a filtered list of stacks": org + "/-/stacks?q=copy-00",
		"failed stacks": org + "/-/stacks?state=failed", "stacks by owner": org + "/-/stacks?group=owner", "stacks by last change": org + "/-/stacks?group=none&sort=changed",
		"deployments": org + "/-/deployments", "queue": org + "/-/deployments?status=queued", "failed deployments": org + "/-/deployments?status=bad",
		"deployments of a project": org + "/-/deployments?stack=" + site.Project,
		"pools":                    org + "/-/pools", "pool": org + "/-/pools/" + p.pool, "calendar": org + "/-/activity/calendar",
		"activity": org + "/-/activity", "settings and access": org + "/-/activity?part=access",
		"stack": stack, "resources": stack + "/resources", "runs": stack + "/runs",
		"deployment": stack + "/deployments/1", "queued deployment": org + "/" + site.Project + "/" + p.stack(1) + "/deployments/1",
		"deploy": stack + "/deploy", "deployment settings": stack + "/settings", "user settings": "/user/settings", "server": "/-/server",
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		var times []float64
		for i := range figures.Pick(run, 60, 20) + 1 {
			began := time.Now()
			if err := session.read(ctx, pages[name]); err != nil {
				return err
			}
			if i > 0 { // the first one fills caches
				times = append(times, figures.Milliseconds(time.Since(began)))
			}
		}
		run.Add(fmt.Sprintf("page %q with %d stacks and %d deployments, p95", name, stacks, stacks*each10), "ms",
			[]float64{figures.Quantile(times, 0.95)}, figures.AtMost(50, false))
	}
	return nil
}

// runOne runs a deployment of a stack.
func (p *product) runOne(ctx context.Context, stack int) error {
	if _, err := p.enqueue(ctx, stack); err != nil {
		return err
	}
	j, err := p.poll(ctx, 0)
	if err != nil {
		return err
	}
	if j == nil {
		return errors.New("the server handed out no job")
	}
	return errors.Join(j.start(ctx), j.write(ctx, printed(2000)), j.finish(ctx))
}

// multiply copies the only stack with a deployment, and that deployment, in the database.
func (p *product) multiply(ctx context.Context, stacks, deployments int) error {
	db, err := p.OpenSQLite("_pragma=busy_timeout(30000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("writing the copies: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	// n is the number of a copy, and s that of its stack.
	n := fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)", stacks*deployments-1)
	id := func(kind string) string { return "printf('00000000-0000-4000-" + kind + "-%012d', n)" }
	// A copy is two minutes older than the one before.
	earlier := func(column string) string { return "t." + column + " - (n + 1) * 120000000" }
	stack, name := fmt.Sprintf("printf('00000000-0000-4000-8001-%%012d', n / %d)", deployments), fmt.Sprintf("printf('copy-%%05d', n / %d)", deployments)
	for _, c := range []struct {
		table, where string
		values       map[string]string
	}{
		{"stacks", fmt.Sprintf("n %% %d = 0 AND t.id = (SELECT stack_id FROM deployments LIMIT 1)", deployments), map[string]string{"id": stack, "name": name}},
		{"estate", fmt.Sprintf("n %% %d = 0 AND t.stack_id = (SELECT stack_id FROM deployments LIMIT 1)", deployments), map[string]string{
			"stack_id": stack, "name": name, "changed_at": earlier("changed_at"), "resources": "n % 300",
			"rank": fmt.Sprintf("CASE n / %[1]d %% 9 WHEN 0 THEN 0 WHEN 1 THEN 1 ELSE t.rank END", deployments), "owner": fmt.Sprintf("'team-' || (n / %d %% 20)", deployments),
		}},
		{"deployments", "t.id = (SELECT id FROM deployments LIMIT 1)", map[string]string{
			"id": id("8002"), "stack_id": stack, "stack": name, "version": fmt.Sprintf("n %% %d + 1", deployments), "created_at": earlier("created_at"),
		}},
		{"jobs", "t.id = (SELECT id FROM jobs LIMIT 1)", map[string]string{
			"id": id("8003"), "deployment_id": id("8002"), "stack_id": stack, "version": fmt.Sprintf("n %% %d + 1", deployments),
			"queued_at": earlier("queued_at"), "claimed_at": earlier("claimed_at"), "started_at": earlier("started_at"),
			"ended_at": earlier("ended_at"), "modified_at": earlier("modified_at"), "poll_id": "''",
		}},
	} {
		columns, err := columnsOf(ctx, tx, c.table)
		if err != nil {
			return err
		}
		values := make([]string, len(columns))
		for i, column := range columns {
			if values[i] = c.values[column]; values[i] == "" {
				values[i] = "t." + column
			}
		}
		insert := fmt.Sprintf("%s INSERT INTO %s (%s) SELECT %s FROM numbers, %s t WHERE %s", n, c.table, strings.Join(columns, ", "), strings.Join(values, ", "), c.table, c.where)
		if _, err := tx.ExecContext(ctx, insert); err != nil {
			return fmt.Errorf("copying rows of %s: %w", c.table, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("writing the copies: %w", err)
	}
	return nil
}

func columnsOf(ctx context.Context, tx *sql.Tx, table string) (names []string, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT name FROM pragma_table_info($1)", table)
	if err != nil {
		return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
