package doctor

import (
	"strings"
	"testing"
)

func TestKnownEscapes(t *testing.T) {
	const newest = "CVE-2025-31133"
	for _, tt := range []struct {
		component, version string
		want               string // the expected CVEs, in order
	}{
		{"runc", "1.4.0", ""},
		{"runc", "1.5.1", ""},
		{"runc", "1.3.3", ""},
		{"runc", "1.2.9", ""},
		{"runc", "1.4.0-rc.3", ""},
		{"runc", "1.4.0-rc.2", newest},
		{"runc", "1.3.2", newest},
		{"runc", "1.2.7+ds1", newest},
		{"runc", "1.1.15", newest},
		{"runc", "1.1.12", newest},
		{"runc", "v1.1.11", newest + " CVE-2024-21626"},
		{"runc", "1.0.0-rc95", newest + " CVE-2024-21626"},
		{"runc", "1.0.0-rc93", newest + " CVE-2024-21626 CVE-2021-30465"},
		{"runc", "1.0.0-rc10", newest + " CVE-2021-30465"},
		{"runc", "1.0.0-rc6", newest + " CVE-2021-30465 CVE-2019-5736"},
		{"runc", "", ""},
		{"runc", "unknown", ""},
		{"containerd", "v2.1.5", ""},
		{"containerd", "1.4.2", "CVE-2020-15257"},
		{"containerd", "1.4.3", ""},
		{"containerd", "1.3.9", ""},
		{"containerd", "1.2.13", "CVE-2020-15257"},
		{"Docker Engine", "19.03.0", "CVE-2019-14271"},
		{"Docker Engine", "18.09.9", ""},
		{"Docker Engine", "29.1.2", ""},
		{"Docker Desktop", "4.44.2", "CVE-2025-9074"},
		{"Docker Desktop", "4.44.3", ""},
		{"Docker Desktop", "4.24.0", ""},
	} {
		found := knownEscapes(map[string]string{tt.component: tt.version})
		want := strings.Fields(tt.want)
		if len(found) != len(want) {
			t.Errorf("%s %s: %q, want %q", tt.component, tt.version, found, want)
			continue
		}
		for i, cve := range want {
			if !strings.Contains(found[i], cve) || !strings.Contains(found[i], tt.version) {
				t.Errorf("%s %s: %q, want %s", tt.component, tt.version, found[i], cve)
			}
		}
	}
}
