package cluster

import (
	"context"
	"net/http"
)

// CreateNamespace creates a namespace with labels, and waits until pods can be created in it.
func (c *Cluster) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	namespace := map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels},
	}
	if err := c.Call(ctx, http.MethodPost, "/api/v1/namespaces", namespace, nil); err != nil {
		return err
	}
	return c.awaitAccount(ctx, name)
}

// awaitAccount waits for the service account that pods of the namespace use.
func (c *Cluster) awaitAccount(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return c.poll(ctx, "a service account", func() error {
		return c.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", nil, nil)
	})
}

// DeleteNamespace begins to delete a namespace with all of its objects.
func (c *Cluster) DeleteNamespace(ctx context.Context, name string) error {
	return c.Call(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil)
}

// Objects returns the names of the namespace's objects of some kinds, such as pods, each as KIND/NAME.
func (c *Cluster) Objects(ctx context.Context, namespace string, kinds ...string) ([]string, error) {
	var names []string
	for _, kind := range kinds {
		var found struct {
			Items []struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			} `json:"items"`
		}
		if err := c.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/"+kind, nil, &found); err != nil {
			return nil, err
		}
		for _, item := range found.Items {
			names = append(names, kind+"/"+item.Metadata.Name)
		}
	}
	return names, nil
}
