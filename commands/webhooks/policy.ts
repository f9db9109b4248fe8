import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.setRetryPolicy, {
  summary: 'Set how often and when failed deliveries of a webhook are retried',
  format: ({ name, retryPolicy }) =>
    retryPolicy === null
      ? `${String(name)}: default policy, 5 retries after 1, 2, 4, 8 and 16 seconds\n`
      : `${String(name)}: ${JSON.stringify(retryPolicy)}\n`,
  description: 'Values that are not given are the defaults; without any flag the policy is the default.',
  examples: [
    'svc webhooks policy "Ticket system" --max-retries 8 --initial-delay-ms 2000\nTicket system: {"maxRetries":8,"initialDelayMs":2000,"backoffMultiplier":2,"maxDelayMs":300000}',
    'svc webhooks policy "Ticket system"\nTicket system: default policy, 5 retries after 1, 2, 4, 8 and 16 seconds',
  ],
})
