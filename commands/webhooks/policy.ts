import { command } from '../../src/cli/command.ts'
import { webhooks } from '../../src/webhooks/contract.ts'

export default command(webhooks.setRetryPolicy, {
  summary: 'Say how often and when a failed delivery of a webhook is tried again',
  format: ({ name, retryPolicy }) =>
    retryPolicy === null
      ? `${String(name)}: as usual, 5 retries after 1, 2, 4, 8 and 16 seconds\n`
      : `${String(name)}: ${JSON.stringify(retryPolicy)}\n`,
  description: 'What is left out is as usual; without any flag all of it.',
  examples: [
    'svc webhooks policy "Ticket system" --max-retries 8 --initial-delay-ms 2000\nTicket system: {"maxRetries":8,"initialDelayMs":2000,"backoffMultiplier":2,"maxDelayMs":300000}',
    'svc webhooks policy "Ticket system"\nTicket system: as usual, 5 retries after 1, 2, 4, 8 and 16 seconds',
  ],
})
