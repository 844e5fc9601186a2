package source

import "testing"

func TestCauseOfAFailure(t *testing.T) {
	const advice = "fatal: Could not read from remote repository.\n\n" +
		"Please make sure you have the correct access rights\nand the repository exists.\n"
	for _, tt := range []struct{ output, want string }{
		{
			"ssh: Could not resolve hostname git.invalid: Name or service not known\n" + advice,
			"ssh: Could not resolve hostname git.invalid: Name or service not known",
		},
		{
			"fatal: unable to access 'https://git.invalid/': Could not resolve host: git.invalid\n",
			"unable to access 'https://git.invalid/': Could not resolve host: git.invalid",
		},
		{advice, "Could not read from remote repository."},
		{"", "git fetch: <nil>"},
	} {
		if got := (&commandError{command: "fetch", output: tt.output}).Error(); got != tt.want {
			t.Errorf("git says %q: got %q, want %q", tt.output, got, tt.want)
		}
	}
}
