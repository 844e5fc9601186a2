package podspec

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ParseCPUs parses a number of CPUs, such as 2, 1.5 or 500m.
func ParseCPUs(s string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 {
		return q, errors.New("is not a number of CPUs: write a number such as 2, 1.5 or 500m")
	}
	return q, nil
}

// ParseMemory parses an amount of memory. A number without a unit is in Gi.
func ParseMemory(s string) (resource.Quantity, error) {
	if strings.Trim(s, "0123456789.") == "" {
		s += "Gi"
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() <= 0 || q.Value() < 1<<20 {
		return q, errors.New("is not an amount of memory: write a number of Gi such as 4, or a quantity such as 512Mi")
	}
	return q, nil
}
