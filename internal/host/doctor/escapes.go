package doctor

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type escape struct {
	component string // the component's name, as the engine reports it
	cves      string
	from      string   // the first affected version; if "", all versions before the fix are affected
	fixed     []string // the first fixed version of each release series, oldest series first
}

// EscapesUntil returns the date until which the list of container escapes is complete, as far as the
// projects' advisories are public.
func EscapesUntil() time.Time { return time.Date(2026, time.September, 5, 0, 0, 0, 0, time.UTC) }

// escapes lists the container escapes that the projects' advisories describe until [EscapesUntil],
// newest first. It omits those of containerd's CRI plugin, of authorization plugins and of builds,
// which jobs in an engine do not reach. A distribution may have fixed an escape in an older version.
var escapes = []escape{
	{component: "runc", cves: "CVE-2026-41579", fixed: []string{"1.3.6", "1.4.3", "1.5.0-rc.3"}},
	{component: "Docker Engine", cves: "CVE-2026-41567, CVE-2026-41568, CVE-2026-42306", fixed: []string{"29.5.1"}},
	{component: "Docker Desktop", cves: "CVE-2026-5843", fixed: []string{"4.71.0"}},
	{component: "runc", cves: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", fixed: []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}},
	{component: "runc", cves: "CVE-2024-21626", from: "1.0.0-rc.93", fixed: []string{"1.1.12"}},
	{component: "runc", cves: "CVE-2021-30465", fixed: []string{"1.0.0-rc.95"}},
	{component: "runc", cves: "CVE-2019-5736", fixed: []string{"1.0.0-rc.7"}},
	{component: "containerd", cves: "CVE-2020-15257", fixed: []string{"1.3.9", "1.4.3"}},
	{component: "Docker Engine", cves: "CVE-2019-14271", from: "19.3.0", fixed: []string{"19.3.1"}},
	{component: "Docker Desktop", cves: "CVE-2025-9074", from: "4.25.0", fixed: []string{"4.44.3"}},
}

func knownEscapes(components map[string]string) []string {
	var out []string
	for _, e := range escapes {
		if v, ok := parseVersion(components[e.component]); ok && e.in(v) {
			out = append(out, fmt.Sprintf("%s %s: %s, fixed in %s", e.component, components[e.component], e.cves, strings.Join(e.fixed, ", ")))
		}
	}
	return out
}

func (e escape) in(v []int) bool {
	if from, ok := parseVersion(e.from); ok && slices.Compare(v, from) < 0 {
		return false
	}
	for _, text := range e.fixed {
		fixed, _ := parseVersion(text)
		if slices.Equal(v[:2], fixed[:2]) {
			return slices.Compare(v, fixed) < 0
		}
	}
	first, _ := parseVersion(e.fixed[0])
	return slices.Compare(v, first) < 0 // later release series included the fix from the start
}

var versionForm = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:-(?:rc|beta)\.?(\d{1,6}))?`)

// parseVersion returns the numbers of a version in an order that slices.Compare can use. A release
// sorts after its release candidates.
func parseVersion(text string) ([]int, bool) {
	found := versionForm.FindStringSubmatch(text)
	if found == nil {
		return nil, false
	}
	v := []int{0, 0, 0, math.MaxInt}
	for i, digits := range found[1:] {
		if digits == "" {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil, false
		}
		v[i] = n
	}
	return v, true
}
