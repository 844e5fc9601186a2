package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

const (
	// keptDeliveries is the time for which the forge keeps deliveries.
	keptDeliveries = 72 * time.Hour
	// maxUndelivered bounds the deliveries of one answer, which are in memory together.
	maxUndelivered = 20
)

// attempt is an attempt of the forge to hand over a delivery.
type attempt struct {
	ID           int64     `json:"id"`
	GUID         string    `json:"guid"`
	At           time.Time `json:"delivered_at"`
	Status       int       `json:"status_code"`
	Installation int64     `json:"installation_id"`
}

// Undelivered implements [vcs.Redeliverer]. The forge does not try again by itself, and lists the
// latest attempt first. Attempts to hand over the same delivery have the same GUID.
func (c *client) Undelivered(ctx context.Context, since time.Time) ([]vcs.Delivery, time.Time, error) {
	if c.app == nil {
		return nil, since, nil
	}
	if oldest := time.Now().Add(-keptDeliveries); since.Before(oldest) {
		since = oldest
	}
	until := since
	accepted := map[string]bool{}
	var failed []attempt
	err := rest.Pages(ctx, c.app.api, "/app/hook/deliveries?per_page=100", func(page []attempt) (bool, error) {
		for _, a := range page {
			if a.At.Before(since) {
				return false, nil
			}
			if a.At.After(until) {
				until = a.At
			}
			switch {
			case a.Status >= 200 && a.Status < 300:
				accepted[a.GUID] = true
			case strconv.FormatInt(a.Installation, 10) == c.app.Installation && a.GUID != "":
				failed = append(failed, a)
			}
		}
		return true, nil
	})
	if err != nil && !errors.Is(err, rest.ErrManyPages) {
		return nil, since, fmt.Errorf("listing the deliveries of the GitHub App: %w", err)
	}
	slices.Reverse(failed) // oldest first
	var out []vcs.Delivery
	for _, a := range failed {
		if accepted[a.GUID] {
			continue
		}
		if len(out) >= maxUndelivered && a.At.After(since) {
			return out, a.At, nil
		}
		accepted[a.GUID] = true // once
		d, err := c.delivery(ctx, a)
		if errors.Is(err, vcs.ErrNotFound) || errors.Is(err, outbound.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, since, err
		}
		out = append(out, d)
	}
	return out, until, nil
}

// delivery reads the content of a delivery.
func (c *client) delivery(ctx context.Context, a attempt) (vcs.Delivery, error) {
	var detail struct {
		Request struct {
			Headers map[string]string `json:"headers"`
			Payload json.RawMessage   `json:"payload"`
		} `json:"request"`
	}
	if _, err := c.app.api.Get(ctx, "/app/hook/deliveries"+rest.Path(strconv.FormatInt(a.ID, 10)), &detail); err != nil {
		return vcs.Delivery{}, fmt.Errorf("reading a delivery of the GitHub App: %w", err)
	}
	d := vcs.Delivery{Header: map[string]string{}, Body: detail.Request.Payload}
	for name, value := range detail.Request.Headers {
		d.Header[strings.ToLower(name)] = value
	}
	d.Header["x-github-delivery"] = a.GUID
	return d, nil
}
