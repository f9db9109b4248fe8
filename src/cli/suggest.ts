export * from '../core/suggest.ts'
