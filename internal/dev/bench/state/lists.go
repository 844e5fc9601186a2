package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

// Lists measures reading pages of many stacks and of a long history, compared with the bare
// queries.
func (b *Bench) Lists(ctx context.Context) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	db, err := p.openDatabase()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := b.listStacks(ctx, p, db, pick(b, 10_000, 500)); err != nil {
		return err
	}
	return b.listUpdates(ctx, p, db, pick(b, 5000, 100))
}

const pageSize = 100

func (b *Bench) listStacks(ctx context.Context, p *product, db *sql.DB, n int) error {
	b.Say("  creating %d stacks", n)
	if err := inParallel(8, n, func(i int) error { return p.newStack(ctx, fmt.Sprintf("s%05d", i)) }); err != nil {
		return err
	}
	var pages, queries []float64
	seen := 0
	for range b.Rounds {
		token, after := "", ""
		for {
			began := time.Now()
			body, err := p.read(ctx, fmt.Sprintf("/api/user/stacks?organization=%s&maxResults=%d&continuationToken=%s", p.Organization, pageSize, url.QueryEscape(token)))
			if err != nil {
				return err
			}
			pages = append(pages, time.Since(began).Seconds()*1000)
			var answer struct {
				Stacks            []json.RawMessage `json:"stacks"`
				ContinuationToken string            `json:"continuationToken"`
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				return fmt.Errorf("reading a page of stacks: %w", err)
			}
			seen += len(answer.Stacks)
			began = time.Now()
			if after, err = scan(ctx, db, `SELECT s.id, s.last_update_at, s.resource_count, s.name FROM stacks s JOIN organizations o ON o.id = s.org_id
				WHERE o.name = $1 AND s.project = $2 AND s.name > $3 ORDER BY s.name LIMIT $4`, p.Organization, project, after, pageSize); err != nil {
				return err
			}
			queries = append(queries, time.Since(began).Seconds()*1000)
			if token = answer.ContinuationToken; token == "" {
				break
			}
		}
	}
	b.addPage(fmt.Sprintf("a page of %d of %d stacks, p95; bare query", pageSize, n), pages, queries)
	b.Add("stacks missing in the list", "stacks", []float64{float64(n*b.Rounds - seen)}, nil, figures.AtMost(0, true))
	return nil
}

func (b *Bench) listUpdates(ctx context.Context, p *product, db *sql.DB, n int) error {
	b.Say("  running %d updates", n)
	if err := p.newStack(ctx, "history"); err != nil {
		return err
	}
	for range n {
		if err := p.emptyUpdate(ctx, "history"); err != nil {
			return err
		}
	}
	id, err := scan(ctx, db, "SELECT id FROM stacks WHERE name = 'history'")
	if err != nil {
		return err
	}
	var pages, queries []float64
	missing := 0
	for range pick(b, 200, 20) {
		page := 1 + rand.IntN((n+pageSize-1)/pageSize)
		began := time.Now()
		body, err := p.read(ctx, fmt.Sprintf("%s/updates?pageSize=%d&page=%d", p.path("history"), pageSize, page))
		if err != nil {
			return err
		}
		pages = append(pages, time.Since(began).Seconds()*1000)
		var answer struct {
			Updates []json.RawMessage `json:"updates"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return fmt.Errorf("reading a page of updates: %w", err)
		}
		missing += min(pageSize, n-(page-1)*pageSize) - len(answer.Updates)
		began = time.Now()
		if _, err := scan(ctx, db, `SELECT id, kind, program, status, version, started_at, finished_at, resource_changes, resource_count
			FROM updates WHERE stack_id = $1 AND preview = 0 ORDER BY version DESC LIMIT $2 OFFSET $3`, id, pageSize, (page-1)*pageSize); err != nil {
			return err
		}
		queries = append(queries, time.Since(began).Seconds()*1000)
	}
	b.addPage(fmt.Sprintf("a page of %d of %d updates, p95; bare query", pageSize, n), pages, queries)
	b.Add("updates missing in the pages", "updates", []float64{float64(missing)}, nil, figures.AtMost(0, true))
	return nil
}

func (b *Bench) addPage(figure string, pages, queries []float64) {
	p95 := func(samples []float64) []float64 { return []float64{figures.Quantile(samples, 0.95)} }
	b.Add(figure, "ms", p95(pages), p95(queries), figures.RatioAtMost(3, false))
}

// scan runs a query, reads all rows, and returns the last column of the last row.
func scan(ctx context.Context, db *sql.DB, query string, args ...any) (string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return "", fmt.Errorf("running the bare query: %w", err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", fmt.Errorf("running the bare query: %w", err)
	}
	row := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", fmt.Errorf("running the bare query: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return "", fmt.Errorf("running the bare query: %w", err)
	}
	return row[len(row)-1].String, nil
}

// emptyUpdate records an update that changes nothing.
func (p *product) emptyUpdate(ctx context.Context, stack string) error {
	environment := map[string]string{}
	for i := range 20 {
		environment[fmt.Sprintf("vcs.key%02d", i)] = "a value of common length"
	}
	program := map[string]any{"name": project, "runtime": "yaml", "metadata": map[string]any{"message": "an update", "environment": environment}}
	var created struct {
		ID string `json:"updateID"`
	}
	if err := p.Call(ctx, http.MethodPost, p.path(stack)+"/update", program, &created); err != nil {
		return err
	}
	var started struct {
		Token string `json:"token"`
	}
	path := p.path(stack) + "/update/" + created.ID
	if err := p.Call(ctx, http.MethodPost, path, map[string]any{}, &started); err != nil {
		return err
	}
	// Canceling requires no lease.
	return p.Call(ctx, http.MethodPost, path+"/cancel", nil, nil)
}

func inParallel(workers, n int, do func(i int) error) error {
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
