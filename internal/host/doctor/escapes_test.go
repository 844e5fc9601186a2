package doctor

import (
	"strings"
	"testing"
)

func TestKnownEscapes(t *testing.T) {
	const masked, dev = "CVE-2025-31133", "CVE-2026-41579"
	for _, tt := range []struct {
		component, version string
		want               string // the expected CVEs, in order
	}{
		{"runc", "1.3.6", ""},
		{"runc", "1.4.3", ""},
		{"runc", "1.5.0-rc.3", ""},
		{"runc", "1.5.1", ""},
		{"runc", "1.6.0", ""},
		{"runc", "1.5.0-rc.2", dev},
		{"runc", "1.4.2", dev},
		{"runc", "1.4.0", dev},
		{"runc", "1.3.5", dev},
		{"runc", "1.3.3", dev},
		{"runc", "1.2.9", dev},
		{"runc", "1.4.0-rc.3", dev},
		{"runc", "1.4.0-rc.2", dev + " " + masked},
		{"runc", "1.3.2", dev + " " + masked},
		{"runc", "1.2.7+ds1", dev + " " + masked},
		{"runc", "1.1.15", dev + " " + masked},
		{"runc", "1.1.12", dev + " " + masked},
		{"runc", "v1.1.11", dev + " " + masked + " CVE-2024-21626"},
		{"runc", "1.0.0-rc95", dev + " " + masked + " CVE-2024-21626"},
		{"runc", "1.0.0-rc93", dev + " " + masked + " CVE-2024-21626 CVE-2021-30465"},
		{"runc", "1.0.0-rc10", dev + " " + masked + " CVE-2021-30465"},
		{"runc", "1.0.0-rc6", dev + " " + masked + " CVE-2021-30465 CVE-2019-5736"},
		{"runc", "", ""},
		{"runc", "unknown", ""},
		{"containerd", "v2.1.5", ""},
		{"containerd", "1.4.2", "CVE-2020-15257"},
		{"containerd", "1.4.3", ""},
		{"containerd", "1.3.9", ""},
		{"containerd", "1.2.13", "CVE-2020-15257"},
		{"Docker Engine", "19.03.0", "CVE-2026-41567 CVE-2019-14271"},
		{"Docker Engine", "18.09.9", "CVE-2026-41568"},
		{"Docker Engine", "20.10.24+dfsg1", "CVE-2026-42306"},
		{"Docker Engine", "29.5.0", "CVE-2026-41567"},
		{"Docker Engine", "29.5.1", ""},
		{"Docker Engine", "29.6.0", ""},
		{"Docker Engine", "30.0.0", ""},
		{"Docker Desktop", "4.44.2", "CVE-2026-5843 CVE-2025-9074"},
		{"Docker Desktop", "4.44.3", "CVE-2026-5843"},
		{"Docker Desktop", "4.24.0", "CVE-2026-5843"},
		{"Docker Desktop", "4.71.0", ""},
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
