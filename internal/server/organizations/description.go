package organizations

import (
	"time"

	"workflowagent/internal/server/store"
)

// Description is a [Summary] in answers of commands and of the API.
type Description struct {
	Name          string   `json:"name"`
	ID            string   `json:"id"`
	Members       int64    `json:"members"`
	Teams         int64    `json:"teams"`
	Stacks        int64    `json:"stacks"`
	DeletedStacks int64    `json:"deletedStacks"`
	Resources     int64    `json:"resources"`
	Updates       int64    `json:"updates"`
	Deployments   int64    `json:"deployments"`
	Queued        int64    `json:"queued"`
	Active        int64    `json:"active"`
	Updating      int64    `json:"updating"`
	Pools         int64    `json:"pools"`
	Agents        int64    `json:"agents"`
	Schedules     int64    `json:"schedules"`
	Webhooks      int64    `json:"webhooks"`
	Integrations  int64    `json:"integrations"`
	Issuers       int64    `json:"issuers"`
	Tokens        int64    `json:"tokens"`
	StoredBytes   int64    `json:"storedBytes"`
	FormerNames   []string `json:"formerNames"`
	// StorageLimit in bytes and DeploymentLimit apply to the organization; 0 means no limit. StorageQuota and
	// DeploymentQuota are what was set for it; 0 means the server's setting, and -1 no limit.
	StorageLimit    int64     `json:"storageLimit"`
	DeploymentLimit int64     `json:"deploymentLimit"`
	StorageQuota    int64     `json:"storageQuota"`
	DeploymentQuota int64     `json:"deploymentQuota"`
	Created         time.Time `json:"created"`
}

// Content returns what belongs to the organization.
func (o Description) Content() store.OrganizationContent {
	return store.OrganizationContent{
		Members: o.Members, Teams: o.Teams, Tokens: o.Tokens, Stacks: o.Stacks, DeletedStacks: o.DeletedStacks, Resources: o.Resources, Updates: o.Updates, Deployments: o.Deployments,
		Schedules: o.Schedules, Pools: o.Pools, Agents: o.Agents, Webhooks: o.Webhooks, Integrations: o.Integrations, Issuers: o.Issuers,
		StoredBytes: o.StoredBytes, Queued: o.Queued, Active: o.Active, Updating: o.Updating,
	}
}

// Describe returns the form of an organization in answers.
func (o Summary) Describe() Description {
	c := o.Content
	return Description{
		Name: o.Name, ID: o.ID, Members: c.Members, Teams: c.Teams, Stacks: c.Stacks, DeletedStacks: c.DeletedStacks, Resources: c.Resources, Updates: c.Updates,
		Deployments: c.Deployments, Queued: c.Queued, Active: c.Active, Updating: c.Updating, Pools: c.Pools, Agents: c.Agents,
		Schedules: c.Schedules, Webhooks: c.Webhooks, Integrations: c.Integrations, Issuers: c.Issuers, Tokens: c.Tokens,
		StoredBytes: c.StoredBytes, FormerNames: append([]string{}, o.Former...), Created: o.CreatedAt,
		StorageLimit: o.StorageLimit, DeploymentLimit: o.DeploymentLimit, StorageQuota: o.StorageQuota, DeploymentQuota: o.DeploymentQuota,
	}
}
