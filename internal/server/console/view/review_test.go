package view_test

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/console/view/gallery"
)

// render returns the HTML of the page of the gallery with a review.
func render(t *testing.T) string {
	t.Helper()
	var buf bytes.Buffer
	if err := view.Frame(gallery.Shell, gallery.Pages()["review"]).Render(t.Context(), &buf); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// TestReview checks that a review shows deletes and replaces before the other changes, and that an approval, but not a
// rejection, needs the tick that they were read.
func TestReview(t *testing.T) {
	page := render(t)
	at := 0
	for _, part := range []string{"waits for approval", `<b>199</b>same`, "3, read these first", "orders-replica", "holds data", "Updates and creates", "checkout-service", "0 of 1 approval", `name="read" value="on" required`, "1 delete, 2 replaces", `value="approve"`, `value="reject" formnovalidate`, "web-owners can approve", `class="save phoneonly"`} {
		i := strings.Index(page[at:], part)
		if i < 0 {
			t.Fatalf("%q is not on the page after %q", part, page[max(0, at-80):at])
		}
		at += i
	}
}

// TestStaleReview checks that a stale preview cannot be approved and says why, and that one without deletes and replaces
// asks for no tick.
func TestStaleReview(t *testing.T) {
	var buf bytes.Buffer
	r := view.Review{Plan: view.Plan{Create: 2, Same: 1}, Safe: view.Badge("", "rows"), Decision: view.Decision{Needed: 2, Given: 1, Stale: "The state has changed since the preview."}}
	if err := view.ReviewPage(r).Render(t.Context(), &buf); err != nil {
		t.Fatal(err)
	}
	page := buf.String()
	for part, want := range map[string]bool{`value="approve" disabled`: true, "The state has changed since": true, "1 of 2 approvals": true, "I have read": false, "Deletes and replaces": false, "Updates and creates": true} {
		if strings.Contains(page, part) != want {
			t.Errorf("%q on the page: %t, want %t", part, !want, want)
		}
	}
}
