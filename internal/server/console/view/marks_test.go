package view

import "testing"

func TestInitials(t *testing.T) {
	for name, want := range map[string]string{
		"Ada Lindqvist": "AL", "Ada B. Lindqvist": "AL", "admin": "AD", "x": "X", "ci-release": "CR", "": "··", "…": "··", "élan": "ÉL", "李 小龙": "李小",
		"The server": "··", "Pull request": "··", "push": "PU",
	} {
		if got := Initials(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"":              {"", ""},
		"prod":          {"prod", ""},
		"twelve-chars":  {"twelve-chars", ""},
		"thirteen-char": {"thirt", "een-char"},
		"日本語日本語日本語日本語日本":        {"日本語日本語", "日本語日本語日本"},
		"a-name\u202ewith-more": {"a-name\u202ew", "ith-more"},
	} {
		if head, tail := split(name); head != want[0] || tail != want[1] {
			t.Errorf("%q: %q and %q, want %q", name, head, tail, want)
		}
	}
}

func TestMarkOf(t *testing.T) {
	for status, want := range map[string]string{
		"succeeded": MarkOK, "failed": MarkFailed, "lost": MarkFailed, "in-progress": MarkRunning, "accepted": MarkRunning, "not-started": MarkQueued,
		"pending": MarkQueued, "canceled": MarkCancelled, "skipped": MarkSkipped, "paused": MarkPaused, "offline": MarkNever, "": MarkNever, `x"><b>`: MarkNever,
	} {
		if got := MarkOf(status); got != want {
			t.Errorf("%q: %q, want %q", status, got, want)
		}
	}
}
