package holds

import (
	"slices"
	"strings"
	"testing"
)

func TestData(t *testing.T) {
	for kind, want := range map[string]bool{
		"aws:s3/bucket:Bucket":                          true,
		"aws-native:s3:Bucket":                          true,
		"azure-native:storage/v20230101:StorageAccount": true,
		"kubernetes:core/v1:PersistentVolumeClaim":      true,
		"digitalocean:index/volume:Volume":              true,
		"aws:s3/bucketPolicy:BucketPolicy":              false,
		"aws:iam/role:Role":                             false,
		"pulumi:pulumi:Stack":                           false,
		"acme:index:Bucket":                             false,
		"":                                              false,
		"aws:s3":                                        false,
		"# Kubernetes":                                  false,
		"aws:s3/bucket:Bucket:\u202e":                   false,
		"pulumi:providers:aws":                          false,
	} {
		if got := Data(kind); got != want {
			t.Errorf("%q holds data: %t, want %t", kind, got, want)
		}
	}
}

// TestTypes keeps the list readable: each type once, in the form in which it is compared.
func TestTypes(t *testing.T) {
	var seen []string
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Count(line, ":") != 2 || Short(line) != line || strings.TrimSpace(line) != line {
			t.Errorf("%q is not PACKAGE:MODULE:Type", line)
		}
		if slices.Contains(seen, line) {
			t.Errorf("%s is in the list twice", line)
		}
		seen = append(seen, line)
	}
}
