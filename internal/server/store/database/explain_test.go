package database

import "testing"

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"9.6.24": false, "12.18": false, "12beta1": false, "13.0": true, "15.4 (Debian 15.4-1)": true, "18devel": true, "": true, "unknown": true,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
