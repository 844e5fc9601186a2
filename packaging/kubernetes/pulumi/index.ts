// Installs the agent with the values of the stack's configuration. docs/kubernetes.md lists them.
import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";
import { PulumiSelfHostedAgentComponent } from "./agent";

const config = new pulumi.Config();
const agentNamespace = config.require("agentNamespace");
const pool = config.get("agentPool");
const suffix = pool ? `-${pool}` : "";
const jobNamespace = config.get("jobNamespace") ?? `${agentNamespace}${suffix}-jobs`;
const createNamespaces = config.getBoolean("createNamespaces") ?? true;
const oidc = config.getObject<{ organization: string; poolID: string }>("agentOIDC");
const renderYamlToDirectory = config.get("renderYamlToDirectory");

const provider = new k8s.Provider("kubernetes", renderYamlToDirectory ? { renderYamlToDirectory } : {});

const namespaces = (
    !createNamespaces
        ? []
        : jobNamespace === agentNamespace
        ? [{ name: agentNamespace, podSecurity: "baseline" }]
        : [
              { name: agentNamespace, podSecurity: "restricted" },
              // Many images run as root. If yours do not, enforce restricted.
              { name: jobNamespace, podSecurity: "baseline" },
          ]
).map(
    ({ name, podSecurity }) =>
        new k8s.core.v1.Namespace(
            name,
            {
                metadata: {
                    name,
                    labels: {
                        "app.kubernetes.io/name": "customer-managed-workflow-agent",
                        "pod-security.kubernetes.io/enforce": podSecurity,
                    },
                },
            },
            { provider },
        ),
);

// The account of the jobs. To give them a cloud identity, add the annotations that your cloud
// documents, such as eks.amazonaws.com/role-arn.
const workerServiceAccount = new k8s.core.v1.ServiceAccount(
    `workflow-runner${suffix}`,
    {
        metadata: {
            name: `workflow-runner${suffix}`,
            namespace: jobNamespace,
            labels: { "app.kubernetes.io/name": `customer-managed-workflow-agent${suffix}` },
            annotations: config.getObject<Record<string, string>>("workerServiceAccountAnnotations"),
        },
        automountServiceAccountToken: false,
    },
    { provider, dependsOn: namespaces },
);

const agent = new PulumiSelfHostedAgentComponent(
    "workflow-agent",
    {
        namespace: agentNamespace,
        jobNamespace,
        pool,
        accessToken: oidc ? undefined : config.requireSecret("selfHostedAgentsAccessToken"),
        oidc,
        serviceUrl: config.get("selfHostedServiceURL"),
        image: config.require("agentImage"),
        imagePullPolicy: config.get("agentImagePullPolicy"),
        replicas: config.getNumber("agentReplicas"),
        numCpus: config.get("agentNumCpus"),
        memQuantity: config.get("agentMemQuantity"),
        workerServiceAccount: workerServiceAccount.metadata.name,
        podTemplate: config.getObject<object>("podTemplate"),
        caCertificateSecretName: config.get("caCertificateSecretName"),
        enableServiceMonitor: config.getBoolean("enableServiceMonitor"),
        enableNetworkPolicy: config.getBoolean("enableNetworkPolicy"),
        settings: config.getObject<Record<string, string>>("agentSettings"),
        extraEnv: config.getObject<k8s.types.input.core.v1.EnvVar[]>("agentExtraEnv"),
        extraEnvFrom: config.getObject<k8s.types.input.core.v1.EnvFromSource[]>("agentExtraEnvFrom"),
        extraVolumes: config.getObject<k8s.types.input.core.v1.Volume[]>("agentExtraVolumes"),
        extraVolumeMounts: config.getObject<k8s.types.input.core.v1.VolumeMount[]>("agentExtraVolumeMounts"),
    },
    { provider, dependsOn: namespaces },
);

export const deployment = agent.deployment.metadata.name;
