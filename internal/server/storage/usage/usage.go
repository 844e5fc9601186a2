// Package usage reports what an organization used: the resources in the states of its stacks, and
// the time for which its deployments ran. All periods are in UTC.
package usage

import (
	"context"
	"time"

	"workflowagent/internal/server/store"
)

// Point is the usage in one unit of a period.
type Point struct {
	From, To time.Time // the part of the unit that lies in the period
	// Millis is the time, in milliseconds, for which resources existed or deployments ran: the sum
	// over all of them.
	Millis int64
	// Count is the number of deployments that started.
	Count int64
}

// Average returns the average number of resources, rounded.
func (p Point) Average() int64 { return divide(p.Millis, p.To.Sub(p.From)) }

// Hours returns the hours for which resources existed, rounded.
func (p Point) Hours() int64 { return divide(p.Millis, time.Hour) }

// Minutes returns the minutes for which deployments ran, rounded.
func (p Point) Minutes() int64 { return divide(p.Millis, time.Minute) }

func divide(millis int64, by time.Duration) int64 {
	if by < time.Millisecond {
		return 0
	}
	return (millis + by.Milliseconds()/2) / by.Milliseconds()
}

// Service reads the usage of organizations.
type Service struct{ db *store.DB }

// New returns a service on a database.
func New(db *store.DB) *Service { return &Service{db} }

// Resources returns the usage of resources in an organization's stacks within reach, from the first
// unit with a resource on.
func (s *Service) Resources(ctx context.Context, orgID string, reach store.Reach, q Query) ([]Point, error) {
	return s.read(ctx, q, func(tx *store.Tx, hours []Point) error {
		from, to := hours[0].From, hours[len(hours)-1].To
		count, err := tx.CountResources(orgID, reach, from)
		if err != nil {
			return err
		}
		changes, err := tx.ResourceChanges(orgID, reach, from, to)
		if err != nil {
			return err
		}
		for i := range hours {
			h := &hours[i]
			length := h.To.Sub(h.From).Milliseconds()
			h.Millis = count * length
			if len(changes) > 0 && changes[0].Hour == hourOf(h.From) {
				h.Millis += changes[0].Change*length - changes[0].Offset*1000
				count += changes[0].Change
				changes = changes[1:]
			}
			h.Millis = max(0, h.Millis)
		}
		return nil
	})
}

// Deployments returns the usage of deployments of an organization's stacks within reach, from the
// first unit with a deployment on.
func (s *Service) Deployments(ctx context.Context, orgID string, reach store.Reach, q Query) ([]Point, error) {
	return s.read(ctx, q, func(tx *store.Tx, hours []Point) error {
		from, to := hours[0].From, hours[len(hours)-1].To
		times, spans, err := tx.RunTimes(orgID, reach, from, to)
		if err != nil {
			return err
		}
		first := hourOf(from)
		for _, r := range times {
			hours[r.Hour-first].Count += r.Count
			hours[r.Hour-first].Millis += max(0, r.Time.Milliseconds())
		}
		for _, span := range spans {
			if i := hourOf(span.StartedAt) - first; i >= 0 {
				hours[i].Count++
			}
			end := span.EndedAt
			if end.IsZero() || end.After(to) {
				end = to
			}
			for i := max(0, hourOf(span.StartedAt)-first); i < int64(len(hours)) && hours[i].From.Before(end); i++ {
				hours[i].Millis += earlier(end, hours[i].To).Sub(later(span.StartedAt, hours[i].From)).Milliseconds()
			}
		}
		return nil
	})
}

// read calls fill with one empty point per hour of a period, and returns the sums per unit.
func (s *Service) read(ctx context.Context, q Query, fill func(tx *store.Tx, hours []Point) error) ([]Point, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Point, error) {
		from, to, err := q.period(tx.Now().UTC())
		if err != nil {
			return nil, err
		}
		var hours []Point
		for h := from; h.Before(to); h = h.Add(time.Hour) {
			hours = append(hours, Point{From: h, To: earlier(h.Add(time.Hour), to)})
		}
		if len(hours) == 0 {
			return nil, nil
		}
		if err := fill(tx, hours); err != nil {
			return nil, err
		}
		return group(hours, q.Granularity), nil
	})
}

// group sums up the hours of each unit.
func group(hours []Point, g Granularity) []Point {
	var out []Point
	for _, h := range hours {
		last := len(out) - 1
		if last < 0 || !g.same(out[last].From, h.From) {
			if last == 0 && out[0].empty() {
				out = out[:0]
			}
			out = append(out, h)
			continue
		}
		out[last].To, out[last].Millis, out[last].Count = h.To, out[last].Millis+h.Millis, out[last].Count+h.Count
	}
	if len(out) == 1 && out[0].empty() {
		return nil
	}
	return out
}

func (p Point) empty() bool { return p.Millis == 0 && p.Count == 0 }

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
