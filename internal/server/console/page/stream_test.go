package page

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/view"
)

// quiet delivers no notifications.
type quiet struct{}

func (quiet) Subscribe(string, func(string)) (cancel func()) { return func() {} }

// TestStreamWithoutNotifications checks when an open page is rendered again if no notification
// arrives: when it changes by itself, and otherwise each minute.
func TestStreamWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		changes := []time.Time{began.Add(5 * time.Second), began.Add(20 * time.Second), began.Add(10 * time.Minute)}
		var rendered []time.Duration
		show := func(*Visit) (view.Page, error) {
			now := time.Now()
			rendered = append(rendered, now.Sub(began))
			p := view.Page{
				Body: templ.ComponentFunc(func(context.Context, io.Writer) error { return nil }),
				Feed: func(ctx context.Context, _ func(string, any) error) error { <-ctx.Done(); return nil },
			}
			if at := slices.IndexFunc(changes, now.Before); at >= 0 {
				p.ChangesAt = changes[at]
			}
			return p, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s := New(Options{Notes: quiet{}})
		v := &Visit{R: httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)}
		if err := s.stream(httptest.NewRecorder(), v, Anyone, show); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 6 * time.Second, 21 * time.Second, 81 * time.Second, 141 * time.Second}
		if !slices.Equal(rendered, want) {
			t.Errorf("the page was rendered at %v, want %v", rendered, want)
		}
	})
}

// TestHeadsAreLive sends the head of an open page when it changes, and otherwise nothing.
func TestHeadsAreLive(t *testing.T) {
	for name, page := range map[string]func(mark string) view.Page{
		"page-object": func(mark string) view.Page {
			return view.Page{Title: "t", Object: &view.Object{Name: "prod", Badges: view.Marked(mark, mark)}}
		},
		"page-bar": func(mark string) view.Page {
			return view.Page{Title: "t", Bar: &view.Bar{Title: "Stacks", Count: mark}}
		},
	} {
		w := httptest.NewRecorder()
		out, sent := startEvents(w), &sentPage{elements: map[string][sha256.Size]byte{}}
		for _, step := range []struct{ mark, want string }{{view.MarkRunning, name}, {view.MarkRunning, ""}, {view.MarkFailed, view.MarkFailed}} {
			w.Body.Reset()
			if err := sent.update(t.Context(), out, page(step.mark), view.Numbers{}); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); !strings.Contains(got, step.want) || step.want == "" && got != "" {
				t.Errorf("%s: the page %s sends %q, want %q", name, step.mark, got, step.want)
			}
		}
	}
}
