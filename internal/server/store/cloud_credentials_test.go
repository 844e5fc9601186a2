package store_test

import (
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func TestCloudCredentials(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		for _, tt := range []struct {
			document string
			want     bool
		}{
			{`{"operationContext":{"environmentVariables":{"A":"oidc"}}}`, false},
			{`{"operationContext":{"oidc":{"aws":{"roleArn":"x"}}}}`, true},
		} {
			write(t, db, func(tx *store.Tx) error {
				return tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: "id-a", Document: tt.document})
			})
			used, err := store.Read(t.Context(), db, func(tx *store.Tx) (bool, error) { return tx.CloudCredentials() })
			if err != nil || used != tt.want {
				t.Errorf("%s: got %v, %v, want %v", tt.document, used, err, tt.want)
			}
		}
	})
}
