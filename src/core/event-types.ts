/**
 * The types of events that webhooks can subscribe to, in the order of svc-webhooks(7), with the fields of their data as its
 * table has them; `?`: may be missing.
 */
export const eventGroups = [
  {
    types: ['device.enrolled'],
    data: 'deviceId, hostname, siteId?, osType, agentVersion, enrollmentKeyId, reenrolled: whether the machine was known, possibleReplacementOf?: device that has the same name',
  },
  { types: ['device.online'], data: 'deviceId, hostname, agentVersion, status: `online`' },
  { types: ['device.offline'], data: 'deviceId, hostname, displayName?, lastSeenAt?' },
  {
    types: ['device.updated'],
    data: 'deviceId, hostname, fields: names of the changed fields, and the new value of each, such as agentVersion; keyFingerprint when a machine has registered its first key',
  },
  { types: ['device.decommissioned'], data: 'deviceId, hostname, decommissionedBy' },
  { types: ['alert.triggered'], data: 'alertId, ruleId, deviceId, severity, title, message' },
  { types: ['alert.acknowledged'], data: 'alertId, ruleId, deviceId, acknowledgedBy' },
  { types: ['alert.resolved'], data: 'alertId, ruleId, deviceId, resolvedBy?, resolutionNote?' },
  { types: ['alert.escalated'], data: 'alertId, ruleId, deviceId, severity, escalatedBy' },
  {
    types: ['script.started', 'script.completed', 'script.failed'],
    data: 'executionId, scriptId, deviceId, status, exitCode?',
  },
  {
    types: ['automation.started', 'automation.completed', 'automation.failed'],
    data: 'automationId, runId, triggeredBy, devicesTargeted, status?, devicesSucceeded?, devicesFailed?',
  },
  {
    types: ['policy.evaluated', 'policy.violation', 'policy.compliant'],
    data: 'policyId, policyName, deviceId, hostname, status, previousStatus, enforcement, remediationRunId, evaluatedAt',
  },
  {
    types: ['patch.available', 'patch.approved', 'patch.installed', 'patch.failed', 'patch.rollback'],
    data: 'deviceId, patchId, name, version, error?',
  },
  {
    types: ['security.score_changed'],
    data: 'deviceId, previousScore, currentScore, delta, previousRiskLevel, currentRiskLevel, changedFactors, capturedAt',
  },
  {
    types: ['remote.session.started', 'remote.session.ended', 'remote.file.transferred'],
    data: 'sessionId, deviceId, userId, type, startedAt, endedAt?',
  },
  { types: ['user.login'], data: 'userId, email, method, mfa, ipAddress' },
  { types: ['user.logout'], data: 'userId, email, mfa, ipAddress' },
  {
    types: ['session.login', 'session.logout'],
    data: 'deviceId, hostname, username, sessionType, sessionId, activityState, timestamp',
  },
  { types: ['webhook.test'], data: 'message, timestamp and webhookId, or the data given to the test' },
] as const

export type EventType = (typeof eventGroups)[number]['types'][number]

export const eventTypes: readonly EventType[] = eventGroups.flatMap(
  ({ types }): readonly EventType[] => types,
)
