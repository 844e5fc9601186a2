package runner_test

import "testing"

// TestRunTextOfWindows checks commands and files with the line endings and encodings of Windows.
func TestRunTextOfWindows(t *testing.T) {
	d := shellSteps("if true; then\r\n  printf '\\357\\273\\277FIRST=1\\r\\nSECOND=2\\r\\n' >>\"$PULUMI_ENV\"\r\nfi\r\n",
		"echo \"$FIRST$SECOND-\"\r", `printf '\377\376A\0=\0001\0' >"$PULUMI_ENV"`, "true")
	h := newHarness(t, d)
	if code, _ := h.run(); code != 0 {
		t.Errorf("exit code %d: %s", code, h.text(1))
	}
	h.wantLog(2, "12-\n")
	h.wantLog(4, "a step wrote the file in UTF-16")
}
